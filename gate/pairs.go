package gate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

func pairName(id int64) string { return "P-" + strconv.FormatInt(id, 10) }

const pairSelect = `
	select p.id, p.integration, p.subject, p.found_at, p.state, p.version, p.decided_at, coalesce(p.decided_by, ''), p.note,
	       coalesce(p.rollback_id, 0), p.first_mutation, p.second_mutation
	from hash_pairs p`

// pairRow is a pair as it is stored: its copies by id only.
type pairRow struct {
	p             Pair
	decidedAt     *time.Time
	first, second int64
}

func scanPair(row pgx.CollectableRow) (pairRow, error) {
	var w pairRow
	p := &w.p
	err := row.Scan(&p.ID, &p.Integration, &p.Subject, &p.FoundAt, &p.State, &p.Version, &w.decidedAt, &p.DecidedBy, &p.Note,
		&p.RollbackID, &w.first, &w.second)
	p.FoundAt, p.DecidedAt = p.FoundAt.UTC(), utc(w.decidedAt)
	return w, err
}

// fillPairs adds the copies and how often each was touched, in two queries for
// any number of pairs.
func fillPairs(ctx context.Context, q querier, rows []pairRow) ([]Pair, error) {
	ids := make([]int64, 0, 2*len(rows))
	for _, w := range rows {
		ids = append(ids, w.first, w.second)
	}
	found, err := mutationsByID(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	pairs := make([]Pair, 0, len(rows))
	for _, w := range rows {
		p := w.p
		if found[w.first] == nil || found[w.second] == nil {
			return nil, fmt.Errorf("%s names a mutation that is gone", pairName(p.ID))
		}
		p.First, p.Second = *found[w.first], *found[w.second]
		pairs = append(pairs, p)
	}
	return pairs, countTouched(ctx, q, pairs)
}

// countTouched counts, for each copy, the later applied mutations of its
// entity; its own twin is none.
func countTouched(ctx context.Context, q querier, pairs []Pair) error {
	n := 2 * len(pairs)
	integrations, types, entities := make([]string, 0, n), make([]string, 0, n), make([]string, 0, n)
	ids, twins := make([]int64, 0, n), make([]int64, 0, n)
	add := func(m, twin MutationRecord) {
		integrations = append(integrations, m.Integration)
		types = append(types, m.Mutation.Type)
		entities = append(entities, m.EntityID())
		ids, twins = append(ids, m.ID), append(twins, twin.ID)
	}
	for _, p := range pairs {
		add(p.First, p.Second)
		add(p.Second, p.First)
	}
	counts, err := collect(ctx, q, "count what touched the copies", pgx.RowTo[int], `
		select (select count(*) from mutations m join reservations r on r.mutation_id = m.id
		        where m.integration = c.integration and m.entity_type = c.type and m.entity_id = c.entity
		          and c.entity <> '' and m.id > c.id and m.id <> c.twin and r.state = 'committed')
		from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) with ordinality as c(integration, type, entity, id, twin, n)
		order by c.n`, integrations, types, entities, ids, twins)
	if err != nil {
		return err
	}
	for i := range pairs {
		pairs[i].FirstTouched, pairs[i].SecondTouched = counts[2*i], counts[2*i+1]
	}
	return nil
}

// pairsWhere is the filter's condition beside integration and state.
func pairsWhere(f PairFilter) string {
	where := ""
	if f.AfterSeq != 0 {
		where += ` and p.second_mutation > @after`
	}
	if f.Before != 0 {
		where += ` and p.id < @before`
	}
	return where
}

func pairArgs(f PairFilter) pgx.NamedArgs {
	states := f.States
	if len(states) == 0 {
		states = []PairState{PairOpen, PairDuplicate, PairDistinct, PairUndone}
	}
	limit := any(nil) // no limit
	if f.Limit >= 0 {
		limit = pageSize(f.Limit)
	}
	return pgx.NamedArgs{"integration": f.Integration, "states": states, "after": f.AfterSeq, "before": f.Before, "limit": limit}
}

// Pairs lists hash pairs, newest first, with both copies and how often each
// was touched since. It is read as Items are.
func (g *Gate) Pairs(ctx context.Context, f PairFilter) ([]Pair, error) {
	rows, err := collect(ctx, g.pool, "list hash pairs", scanPair, pairSelect+` where p.id in (
		select l.id from unnest(@states::text[]) s(state)
		cross join lateral (
			select p.id from hash_pairs p
			where p.integration = @integration and p.state between s.state and s.state`+pairsWhere(f)+`
			order by p.state desc, p.id desc limit @limit::bigint
		) l order by l.id desc limit @limit::bigint)
		order by p.id desc`, pairArgs(f))
	if err != nil {
		return nil, err
	}
	return fillPairs(ctx, g.pool, rows)
}

// CountPairs counts what the filter selects, whatever its Limit.
func (g *Gate) CountPairs(ctx context.Context, f PairFilter) (int64, error) {
	var n int64
	err := g.pool.QueryRow(ctx, `
		select count(*) from hash_pairs p
		where p.integration = @integration and p.state = any(@states::text[])`+pairsWhere(f), pairArgs(f)).Scan(&n)
	if err != nil {
		return 0, storeError(fmt.Errorf("count hash pairs: %w", err))
	}
	return n, nil
}

// Pair returns one hash pair, or ErrNotFound.
func (g *Gate) Pair(ctx context.Context, id int64) (Pair, error) { return readPair(ctx, g.pool, id) }

func readPair(ctx context.Context, q querier, id int64) (Pair, error) {
	rows, err := collect(ctx, q, "read a hash pair", scanPair, pairSelect+` where p.id = $1`, id)
	w, err := only(rows, err, pairName(id))
	if err != nil {
		return Pair{}, err
	}
	pairs, err := fillPairs(ctx, q, []pairRow{w})
	return only(pairs, err, pairName(id))
}

// JudgePair records a person's verdict on a pair: duplicate or distinct. A
// verdict may be changed by one who has seen it; one given meanwhile wins, and
// this call gets a *DecidedError. What a rollback undid is not judged again.
// ErrMalformed without a note or for another verdict.
func (g *Gate) JudgePair(ctx context.Context, by Actor, id, version int64, verdict PairState, note string) (Pair, error) {
	if verdict != PairDuplicate && verdict != PairDistinct {
		return Pair{}, fmt.Errorf("a verdict is duplicate or distinct, not %q: %w", verdict, ErrMalformed)
	}
	note, err := checkNote(note)
	if err != nil {
		return Pair{}, err
	}
	at := g.clock.Now()
	var p Pair
	err = g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update hash_pairs set state = $3, version = version + 1, decided_at = $4, decided_by = $5, note = $6
			where id = $1 and version = $2 and state <> 'undone'`, id, version, verdict, at, by.Name, note)
		if err != nil {
			return fmt.Errorf("judge %s: %w", pairName(id), err)
		}
		if tag.RowsAffected() == 0 {
			return whyNotJudged(ctx, tx, id)
		}
		if p, err = readPair(ctx, tx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, entry(at, by, p.Integration, "pair.judged", pairName(id), map[string]any{
			"verdict": string(verdict), "note": note,
			"first": mutationName(p.First.ID), "second": mutationName(p.Second.ID),
		}))
	})
	if err != nil {
		return Pair{}, err
	}
	g.touchPairs(p.Integration)
	return p, nil
}

func (g *Gate) touchPairs(integration string) {
	g.Touch(integration, "pairs")
	g.Touch(integration, "signals")
}

func whyNotJudged(ctx context.Context, tx pgx.Tx, id int64) error {
	var state, by string
	var at *time.Time
	err := tx.QueryRow(ctx, `select state, coalesce(decided_by, ''), decided_at from hash_pairs where id = $1`, id).Scan(&state, &by, &at)
	switch {
	case noRows(err):
		return fmt.Errorf("%s: %w", pairName(id), ErrNotFound)
	case err != nil:
		return fmt.Errorf("look at %s: %w", pairName(id), err)
	case at == nil:
		return fmt.Errorf("%s: %w", pairName(id), ErrStale)
	}
	return &DecidedError{What: pairName(id), State: state, By: by, At: at.UTC()}
}
