package gate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// newItem is a mutation or delivery that waits for a person.
type newItem struct {
	by          Actor // who sent what is held
	integration string
	kind        string // "mutation" or "delivery"
	mutationID  int64  // exactly one of these two
	deliveryID  int64
	reason      Reason
	detail      string
	subject     string
	twin        int64 // the earlier mutation that it repeats, 0 when none
	rollbackID  int64 // the rollback that blocks it, 0 when none
	fingerprint []byte
	at          time.Time
}

// openItem inserts an open item and returns its id. The event and entity that
// people search by are taken from the mutation or delivery.
func openItem(ctx context.Context, tx pgx.Tx, it newItem) (int64, error) {
	fingerprint := it.fingerprint
	if len(fingerprint) != 32 || [32]byte(fingerprint) == [32]byte{} {
		fingerprint = nil
	}
	var id int64
	err := tx.QueryRow(ctx, `
		insert into quarantine_items (integration, kind, mutation_id, delivery_id, reason, detail, subject,
			event_id, entity_id, twin_mutation, rollback_id, fingerprint, state, opened_at)
		select @integration, @kind, nullif(@mutation::bigint, 0), nullif(@delivery::bigint, 0), @reason, @detail, @subject,
			coalesce(m.event_id, e.event_id, ''), coalesce(m.entity_id, ''),
			nullif(@twin::bigint, 0), nullif(@rollback::bigint, 0), @fingerprint::bytea, 'open', @at::timestamptz
		from (select 1) one
		left join mutations m on m.id = @mutation::bigint
		left join deliveries d on d.id = @delivery::bigint
		left join events e on e.seq = d.event_seq
		returning id`,
		pgx.NamedArgs{
			"integration": it.integration, "kind": it.kind, "mutation": it.mutationID, "delivery": it.deliveryID,
			"reason": it.reason, "detail": it.detail, "subject": it.subject, "twin": it.twin, "rollback": it.rollbackID,
			"fingerprint": fingerprint, "at": it.at,
		}).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("open a quarantine item: %w", err)
	}
	err = audit.Append(ctx, tx, entry(it.at, it.by, it.integration, "item.opened", itemName(id), map[string]any{
		"reason": string(it.reason), "detail": it.detail, "mutation": it.mutationID, "delivery": it.deliveryID,
	}))
	return id, err
}

func itemName(id int64) string { return "Q-" + strconv.FormatInt(id, 10) }

const itemSelect = `
	select q.id, q.integration, q.reason, q.detail, q.subject, q.state, q.version, q.fingerprint, q.opened_at, q.decided_at,
	       coalesce(q.decided_by, ''), q.note, q.release_at, q.outcome, coalesce(q.rollback_id, 0), coalesce(q.released_mutation, 0),
	       coalesce(q.mutation_id, 0), coalesce(q.delivery_id, 0), coalesce(q.twin_mutation, 0), coalesce(q.entity_version, 0), q.claimed_until
	from quarantine_items q`

// itemRow is an item as it is stored: what it is about by id only.
type itemRow struct {
	it                       Item
	fingerprint              []byte
	decidedAt, releaseAt     *time.Time
	mutation, delivery, twin int64
	entityVersion            int64      // of the projection when the release was decided, 0 when there was none
	claimedUntil             *time.Time // a worker finishes the release until then
}

func scanItem(row pgx.CollectableRow) (itemRow, error) {
	var w itemRow
	it := &w.it
	err := row.Scan(&it.ID, &it.Integration, &it.Reason, &it.Detail, &it.Subject, &it.State, &it.Version, &w.fingerprint, &it.OpenedAt, &w.decidedAt,
		&it.DecidedBy, &it.Note, &w.releaseAt, &it.Outcome, &it.RollbackID, &it.ReleasedAs,
		&w.mutation, &w.delivery, &w.twin, &w.entityVersion, &w.claimedUntil)
	copy(it.Fingerprint[:], w.fingerprint)
	it.OpenedAt, it.DecidedAt, it.ReleaseAt = it.OpenedAt.UTC(), utc(w.decidedAt), utc(w.releaseAt)
	return w, err
}

// Moved reports whether a mutation that was applied since the item was opened
// has changed the entity that it names: a reason to look twice before a
// release. After the release is decided such a move supersedes the item.
func (it Item) Moved() bool {
	return it.Mutation != nil && it.Current != nil && it.Current.LastMutation != 0 && it.Current.UpdatedAt.After(it.OpenedAt)
}

// fillItems adds what the items are about, in three queries for any number.
func fillItems(ctx context.Context, q querier, integration string, rows []itemRow) ([]Item, error) {
	var ids, deliveries []int64
	for _, w := range rows {
		ids = append(ids, w.mutation, w.twin)
		deliveries = append(deliveries, w.delivery)
	}
	found, err := mutationsByID(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	arrived, err := deliveriesByID(ctx, q, deliveries)
	if err != nil {
		return nil, err
	}
	var names []entityName
	for _, w := range rows {
		if m := found[w.mutation]; m != nil && m.EntityID() != "" {
			names = append(names, entityName{m.Mutation.Type, m.EntityID()})
		}
	}
	current, err := entitiesByName(ctx, q, integration, names)
	if err != nil {
		return nil, err
	}
	items := make([]Item, 0, len(rows))
	for _, w := range rows {
		it := w.it
		it.Mutation, it.Delivery, it.Twin = found[w.mutation], arrived[w.delivery], found[w.twin]
		if it.Mutation != nil {
			it.Current = current[entityName{it.Mutation.Mutation.Type, it.Mutation.EntityID()}]
		}
		items = append(items, it)
	}
	return items, nil
}

// allItemStates is what an empty filter selects.
var allItemStates = []ItemState{ItemOpen, ItemReleasing, ItemReleased, ItemRejected, ItemSuperseded}

// itemsWhere is the filter's condition beside integration and state; its
// parameters are named by itemArgs.
func itemsWhere(f ItemFilter) string {
	where := ""
	if f.Reason != "" {
		where += ` and q.reason = @reason`
	}
	if f.Search != "" {
		where += ` and (q.subject = @search or q.event_id = @search or q.entity_id = @search)`
	}
	if f.Before != 0 {
		where += ` and q.id < @before`
	}
	if f.UpTo != 0 {
		where += ` and q.id <= @upto`
	}
	return where
}

func itemArgs(f ItemFilter) pgx.NamedArgs {
	states := f.States
	if len(states) == 0 {
		states = allItemStates
	}
	return pgx.NamedArgs{
		"integration": f.Integration, "states": states, "reason": f.Reason, "search": f.Search,
		"before": f.Before, "upto": f.UpTo, "limit": pageSize(f.Limit),
	}
}

// Items lists quarantine items, newest first. Each state is read from its
// index, so that the cost is that of a page and not of the history: the range
// of one value makes the order by state and id one that only that index has
// (with an equality Postgres walks the primary key back through all states).
func (g *Gate) Items(ctx context.Context, f ItemFilter) ([]Item, error) {
	if !storable(f.Search, string(f.Reason)) {
		return nil, nil
	}
	page := `
		select p.id from unnest(@states::text[]) s(state)
		cross join lateral (
			select q.id from quarantine_items q
			where q.integration = @integration and q.state between s.state and s.state` + itemsWhere(f) + `
			order by q.state desc, q.id desc limit @limit
		) p order by p.id desc limit @limit`
	if f.Search != "" {
		page = `
		select q.id from quarantine_items q
		where q.integration = @integration and q.state = any(@states::text[])` + itemsWhere(f) + `
		order by q.id desc limit @limit`
	}
	rows, err := collect(ctx, g.pool, "list quarantine items", scanItem,
		itemSelect+` where q.id in (`+page+`) order by q.id desc`, itemArgs(f))
	if err != nil {
		return nil, err
	}
	return fillItems(ctx, g.pool, f.Integration, rows)
}

// CountItems counts what the filter selects, whatever its Limit.
func (g *Gate) CountItems(ctx context.Context, f ItemFilter) (int64, error) {
	if !storable(f.Search, string(f.Reason)) {
		return 0, nil
	}
	var n int64
	err := g.pool.QueryRow(ctx, `
		select count(*) from quarantine_items q
		where q.integration = @integration and q.state = any(@states::text[])`+itemsWhere(f), itemArgs(f)).Scan(&n)
	if err != nil {
		return 0, storeError(fmt.Errorf("count quarantine items: %w", err))
	}
	return n, nil
}

// Item returns one quarantine item with what it is about, or ErrNotFound.
func (g *Gate) Item(ctx context.Context, id int64) (Item, error) { return readItem(ctx, g.pool, id) }

func readItem(ctx context.Context, q querier, id int64) (Item, error) {
	rows, err := collect(ctx, q, "read a quarantine item", scanItem, itemSelect+` where q.id = $1`, id)
	w, err := only(rows, err, itemName(id))
	if err != nil {
		return Item{}, err
	}
	items, err := fillItems(ctx, q, w.it.Integration, []itemRow{w})
	return only(items, err, itemName(id))
}

// NextItem finds the open item to turn to after `after`: the next one by age,
// from the oldest again after the newest, 0 when there is no other. position
// is the place of `after` among the open items, from 1, and 0 when it is not
// open; total is the number of open items.
func (g *Gate) NextItem(ctx context.Context, integration string, after int64) (next int64, position, total int, err error) {
	err = g.pool.QueryRow(ctx, `
		select coalesce(min(id) filter (where id > $2), min(id) filter (where id < $2), 0),
		       case when bool_or(id = $2) then count(*) filter (where id <= $2) else 0 end, count(*)
		from quarantine_items where integration = $1 and state = 'open'`, integration, after).Scan(&next, &position, &total)
	if err != nil {
		return 0, 0, 0, storeError(fmt.Errorf("find the next item: %w", err))
	}
	return next, position, total, nil
}
