package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// querier is what a read needs: the pool, or the transaction that a command
// holds, so that the command returns what it has just written.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// The sizes of a page: of a list that people read, and of one that is worked off.
const (
	defaultPage  = 50
	largestPage  = 500
	largestBatch = 10_000
)

// pageSize is the number of rows for a limit: 0 means the default.
func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, largestPage)
}

// batchSize is pageSize for lists that are worked off rather than read.
func batchSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, largestBatch)
}

// mutationColumns and mutationTables go with mutationRow.scan.
const (
	mutationColumns = `m.id, m.integration, m.natural_key, m.account, m.event_id, m.effect, m.occurred_raw, m.agent, m.run,
		m.op, m.entity_type, m.entity_id, m.subject, m.body, m.fingerprint, m.basis, m.evidence,
		coalesce(m.rollback_id, 0), coalesce(m.rollback_row, 0), m.received_at, m.mode, m.decision, m.reason, m.forwarded,
		r.key, coalesce(r.state, ''), coalesce(r.attempt, 0), coalesce(r.fence, 0), coalesce(r.version, 0),
		r.reserved_at, r.settled_at, coalesce(r.settled_by, ''), coalesce(r.external_ref, ''), coalesce(r.detail, '')`
	mutationTables = ` from mutations m left join reservations r on r.mutation_id = m.id`
	mutationSelect = `select ` + mutationColumns + mutationTables
)

// mutationRow is a mutation and its reservation as they are stored.
type mutationRow struct {
	m                     MutationRecord
	naturalKey, key       []byte
	body, fingerprint     []byte
	basis, evidence       []byte
	reservedAt, settledAt *time.Time
}

func (w *mutationRow) scan(row pgx.CollectableRow) error {
	m := &w.m
	return row.Scan(&m.ID, &m.Integration, &w.naturalKey, &m.Event.Account, &m.Event.ID, &m.Effect, &m.Event.OccurredAt, &m.Agent, &m.Run,
		&m.Mutation.Op, &m.Mutation.Type, &m.Mutation.ID, &m.Mutation.Subject, &w.body, &w.fingerprint, &w.basis, &w.evidence,
		&m.RollbackID, &m.RollbackRow, &m.ReceivedAt, &m.Mode, &m.Verdict, &m.Reason, &m.Forwarded,
		&w.key, &m.State, &m.Attempt, &m.Fence, &m.Version,
		&w.reservedAt, &w.settledAt, &m.SettledBy, &m.ExternalRef, &m.Detail)
}

// record is the row as the domain has it.
func (w *mutationRow) record() (MutationRecord, error) {
	m := w.m
	m.Mutation.Body = w.body
	copy(m.Fingerprint[:], w.fingerprint)
	copy(m.NaturalKey[:], w.naturalKey)
	copy(m.Key[:], w.key)
	m.ReceivedAt = m.ReceivedAt.UTC()
	m.ReservedAt, m.SettledAt = utc(w.reservedAt), utc(w.settledAt)
	if w.basis != nil {
		if err := json.Unmarshal(w.basis, &m.Basis); err != nil {
			return m, fmt.Errorf("basis of M-%d: %w", m.ID, err)
		}
	}
	if w.evidence != nil {
		if err := json.Unmarshal(w.evidence, &m.Evidence); err != nil {
			return m, fmt.Errorf("evidence of M-%d: %w", m.ID, err)
		}
	}
	return m, nil
}

// utc is the time of a nullable column: zero where it is null.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func scanMutation(row pgx.CollectableRow) (MutationRecord, error) {
	var w mutationRow
	if err := w.scan(row); err != nil {
		return MutationRecord{}, err
	}
	return w.record()
}

// mutations runs a query over mutationColumns.
func mutations(ctx context.Context, q querier, what, sql string, args ...any) ([]MutationRecord, error) {
	return collect(ctx, q, what, scanMutation, sql, args...)
}

// collect runs a query and scans its rows; what names the read in an error.
func collect[T any](ctx context.Context, q querier, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, storeError(fmt.Errorf("%s: %w", what, err))
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, storeError(fmt.Errorf("%s: %w", what, err))
	}
	return list, nil
}

// only is the one row of a look-up by id, or ErrNotFound.
func only[T any](list []T, err error, name string) (T, error) {
	var none T
	switch {
	case err != nil:
		return none, err
	case len(list) == 0:
		return none, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return list[0], nil
}

// storable reports whether Postgres can hold the texts, so whether there is any
// use in looking for them: a page's address may say anything.
func storable(texts ...string) bool {
	for _, s := range texts {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return false
		}
	}
	return true
}

// Mutation returns one mutation with its reservation, or ErrNotFound.
func (g *Gate) Mutation(ctx context.Context, id int64) (MutationRecord, error) {
	list, err := mutations(ctx, g.pool, "read a mutation", mutationSelect+` where m.id = $1`, id)
	return only(list, err, mutationName(id))
}

// EventMutations lists every mutation that was asked for an event, whatever
// was decided, in order of arrival; at most 10,000, 0 means 50.
func (g *Gate) EventMutations(ctx context.Context, integration string, ref EventRef, limit int) ([]MutationRecord, error) {
	if !storable(ref.Account, ref.ID) {
		return nil, nil
	}
	return mutations(ctx, g.pool, "list an event's mutations", mutationSelect+`
		where m.integration = $1 and m.account = $2 and m.event_id = $3 order by m.id limit $4`,
		integration, ref.Account, ref.ID, batchSize(limit))
}

// OpenReservations lists what is in flight, unknown or left to a person,
// oldest reservation first; at most 10,000, 0 means 50.
func (g *Gate) OpenReservations(ctx context.Context, integration string, limit int) ([]MutationRecord, error) {
	return mutations(ctx, g.pool, "list open reservations", `
		with open as (
			(select mutation_id, reserved_at from reservations
			 where integration = $1 and state = 'in_flight' order by reserved_at limit $2)
			union all
			(select mutation_id, reserved_at from reservations
			 where integration = $1 and state in ('unknown', 'manual') order by reserved_at limit $2)
			order by reserved_at, mutation_id limit $2
		)
		select `+mutationColumns+`
		from open o join mutations m on m.id = o.mutation_id join reservations r on r.mutation_id = m.id
		order by o.reserved_at, m.id`, integration, batchSize(limit))
}

// MutationsAfter lists the applied mutations with an id in (after, upto], or
// above after where upto is 0, ascending; at most 10,000, 0 means 50. Applied
// means forwarded and committed.
func (g *Gate) MutationsAfter(ctx context.Context, integration string, after, upto int64, limit int) ([]MutationRecord, error) {
	return mutations(ctx, g.pool, "list applied mutations", `select `+mutationColumns+`
		from mutations m join reservations r on r.mutation_id = m.id
		where m.integration = $1 and m.id > $2 and ($3::bigint = 0 or m.id <= $3) and m.forwarded and r.state = 'committed'
		order by m.id limit $4`, integration, after, upto, batchSize(limit))
}

// MutationsOf returns the mutations of an integration that have one of the
// ids, ascending. Ids that are unknown are left out.
func (g *Gate) MutationsOf(ctx context.Context, integration string, ids []int64) ([]MutationRecord, error) {
	return mutations(ctx, g.pool, "read mutations", mutationSelect+`
		where m.id = any($1) and m.integration = $2 order by m.id`, ids, integration)
}

// mutationsByID is MutationsOf as a map, for rows that refer to mutations.
func mutationsByID(ctx context.Context, q querier, ids []int64) (map[int64]*MutationRecord, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := mutations(ctx, q, "read mutations", mutationSelect+` where m.id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]*MutationRecord, len(list))
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, nil
}

const deliverySelect = `
	select d.id, d.integration, coalesce(d.event_seq, 0), coalesce(e.account, ''), coalesce(e.event_id, ''), coalesce(e.occurred_raw, ''),
	       coalesce(e.kind, ''), d.received_at, d.payload, d.mode, d.disposition, d.reason, d.handed_on
	from deliveries d left join events e on e.seq = d.event_seq`

func scanDelivery(row pgx.CollectableRow) (DeliveryRecord, error) {
	var d DeliveryRecord
	err := row.Scan(&d.ID, &d.Integration, &d.EventSeq, &d.Event.Account, &d.Event.ID, &d.Event.OccurredAt,
		&d.Kind, &d.ReceivedAt, &d.Payload, &d.Mode, &d.Disposition, &d.Reason, &d.HandedOn)
	d.ReceivedAt = d.ReceivedAt.UTC()
	return d, err
}

// Deliveries lists the arrivals of an event, oldest first, at most 500.
func (g *Gate) Deliveries(ctx context.Context, integration string, ref EventRef) ([]DeliveryRecord, error) {
	if !storable(ref.Account, ref.ID) {
		return nil, nil
	}
	return collect(ctx, g.pool, "list deliveries", scanDelivery, deliverySelect+`
		where d.event_seq = (select seq from events where integration = $1 and account = $2 and event_id = $3)
		order by d.id limit $4`, integration, ref.Account, ref.ID, largestPage)
}

// Delivery returns one arrival, or ErrNotFound.
func (g *Gate) Delivery(ctx context.Context, id int64) (DeliveryRecord, error) {
	list, err := collect(ctx, g.pool, "read a delivery", scanDelivery, deliverySelect+` where d.id = $1`, id)
	return only(list, err, fmt.Sprintf("delivery %d", id))
}

// deliveriesByID reads the deliveries that rows refer to.
func deliveriesByID(ctx context.Context, q querier, ids []int64) (map[int64]*DeliveryRecord, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	list, err := collect(ctx, q, "read deliveries", scanDelivery, deliverySelect+` where d.id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[int64]*DeliveryRecord, len(list))
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, nil
}
