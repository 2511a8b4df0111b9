package gate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// EntityMutations lists the mutations of an entity with an id above afterSeq,
// ascending and whatever was decided: those that named it, and the create that
// the target answered with its id. At most 10,000, 0 means 50.
func (g *Gate) EntityMutations(ctx context.Context, integration, typ, id string, afterSeq int64, limit int) ([]MutationRecord, error) {
	if id == "" || !storable(typ, id) {
		return nil, nil
	}
	return mutations(ctx, g.pool, "list an entity's mutations", `
		with touched as (
			(select id from mutations
			 where integration = $1 and entity_type = $2 and entity_id = $3 and id > $4 order by id limit $5)
			union
			(select c.id from reservations k join mutations c on c.id = k.mutation_id
			 where k.integration = $1 and k.external_ref = $3 and k.external_ref <> ''
			   and c.entity_type = $2 and c.entity_id = '' and c.id > $4)
			order by id limit $5
		)
		select `+mutationColumns+` from touched t join mutations m on m.id = t.id left join reservations r on r.mutation_id = m.id
		order by m.id`, integration, typ, id, afterSeq, batchSize(limit))
}

const entitySelect = `
	select e.integration, e.type, e.id, e.version, e.target_version, e.state, e.deleted, e.subject, coalesce(e.last_mutation, 0), e.updated_at
	from entities e`

func scanProjected(row pgx.CollectableRow) (Projected, error) {
	var p Projected
	var state []byte
	err := row.Scan(&p.Integration, &p.Type, &p.ID, &p.Version, &p.TargetVersion, &state, &p.Deleted, &p.Subject, &p.LastMutation, &p.UpdatedAt)
	p.State, p.UpdatedAt = state, p.UpdatedAt.UTC()
	return p, err
}

// Projected returns our record of an entity, or ErrNotFound. A deleted entity
// is still on record.
func (g *Gate) Projected(ctx context.Context, integration, typ, id string) (Projected, error) {
	if !storable(typ, id) {
		return Projected{}, fmt.Errorf("%q/%q: %w", typ, id, ErrNotFound)
	}
	list, err := collect(ctx, g.pool, "read an entity", scanProjected,
		entitySelect+` where e.integration = $1 and e.type = $2 and e.id = $3`, integration, typ, id)
	return only(list, err, typ+"/"+id)
}

// SearchEntities finds entities whose id or subject is the query or begins
// with it, upper and lower case apart: exact ones first, then by id. At most
// 500, 0 means 50; an empty query finds nothing.
func (g *Gate) SearchEntities(ctx context.Context, integration, query string, limit int) ([]Projected, error) {
	if query == "" || !storable(query) {
		return nil, nil
	}
	// Bytewise comparison, as the indexes have it: U+10FFFF sorts after all
	// that can follow the query.
	return collect(ctx, g.pool, "search entities", scanProjected, `
		with found as (
			(select type, id from entities where integration = $1 and id ~>=~ $2 and id ~<~ $3 order by id using ~<~ limit $4)
			union
			(select type, id from entities where integration = $1 and subject ~>=~ $2 and subject ~<~ $3
			 order by subject using ~<~, id limit $4)
		)`+entitySelect+` join found f on f.type = e.type and f.id = e.id
		where e.integration = $1
		order by e.id <> $2 and e.subject <> $2, e.id, e.type limit $4`,
		integration, query, query+"\U0010FFFF", pageSize(limit))
}

// entityName names an entity across types, within one integration.
type entityName struct{ typ, id string }

// entitiesByName reads the projection of the entities that rows refer to.
func entitiesByName(ctx context.Context, q querier, integration string, names []entityName) (map[entityName]*Projected, error) {
	if len(names) == 0 {
		return nil, nil
	}
	types, ids := make([]string, len(names)), make([]string, len(names))
	for i, n := range names {
		types[i], ids[i] = n.typ, n.id
	}
	list, err := collect(ctx, q, "read entities", scanProjected, entitySelect+`
		join (select distinct n.type, n.id from unnest($2::text[], $3::text[]) n(type, id)) w on w.type = e.type and w.id = e.id
		where e.integration = $1`, integration, types, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[entityName]*Projected, len(list))
	for i := range list {
		found[entityName{list[i].Type, list[i].ID}] = &list[i]
	}
	return found, nil
}
