package gate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// decisionRow is one drop or hold, with its reason.
type decisionRow struct {
	integration string
	at          time.Time
	kind        string // "mutation" or "delivery"
	mode        Mode
	verdict     Verdict
	reason      Reason
	detail      string
	enforced    bool
	account     string
	eventID     string
	effect      string
	run         string
	agent       string
	key         []byte // nil when none can be derived
	mutationID  int64  // exactly one of these two
	deliveryID  int64
}

// recordDecision adds the row as part of the batch's transaction.
func recordDecision(batch *pgx.Batch, d decisionRow) {
	batch.Queue(`
		insert into decisions (integration, at, kind, mode, decision, reason, detail, enforced,
			account, event_id, effect, run, agent, key, mutation_id, delivery_id)
		values (@integration, @at, @kind, @mode, @decision, @reason, @detail, @enforced,
			@account, @event_id, @effect, @run, @agent, @key, nullif(@mutation_id::bigint, 0), nullif(@delivery_id::bigint, 0))`,
		pgx.NamedArgs{
			"integration": d.integration, "at": d.at, "kind": d.kind, "mode": d.mode, "decision": d.verdict,
			"reason": d.reason, "detail": d.detail, "enforced": d.enforced, "account": d.account, "event_id": d.eventID,
			"effect": d.effect, "run": d.run, "agent": d.agent, "key": d.key,
			"mutation_id": d.mutationID, "delivery_id": d.deliveryID,
		})
}

// Drops lists what was dropped, one row for each event and reason, newest
// first by its last decision: a redelivered event with 312 effects is one row.
// before is the LastID of the page before, 0 for the first page; limit is 1 to
// 500, 0 means 50. A row of a group counts once, where its newest decision is.
func (g *Gate) Drops(ctx context.Context, integration string, before int64, limit int) ([]DropGroup, error) {
	rows, err := g.pool.Query(ctx, `
		with newest as (
			select d.id, d.account, d.event_id, d.reason, d.mode, d.enforced
			from decisions d
			where d.integration = $1 and d.decision = 'drop' and ($2::bigint = 0 or d.id < $2)
			  and not exists (
				select 1 from decisions l
				where l.integration = d.integration and l.account = d.account and l.event_id = d.event_id and l.id > d.id
				  and l.decision = 'drop' and l.reason = d.reason and l.mode = d.mode and l.enforced = d.enforced)
			order by d.id desc limit $3
		)
		select n.account, n.event_id, n.reason, n.mode, n.enforced, n.id,
		       c.deliveries, c.mutations, c.first_at, c.last_at,
		       coalesce(e.received_at, c.first_at), n.id <= coalesce(a.upto, 0)
		from newest n
		cross join lateral (
			select count(*) filter (where m.kind = 'delivery') as deliveries, count(*) filter (where m.kind = 'mutation') as mutations,
			       min(m.at) as first_at, max(m.at) as last_at
			from decisions m
			where m.integration = $1 and m.account = n.account and m.event_id = n.event_id and m.decision = 'drop'
			  and m.reason = n.reason and m.mode = n.mode and m.enforced = n.enforced
		) c
		left join events e on e.integration = $1 and e.account = n.account and e.event_id = n.event_id
		left join acknowledgements a on a.integration = $1 and a.signal = $4
		order by n.id desc`, integration, before, pageSize(limit), SignalDrops)
	if err != nil {
		return nil, storeError(fmt.Errorf("list drops: %w", err))
	}
	list, err := pgx.CollectRows(rows, scanDropGroup)
	if err != nil {
		return nil, storeError(fmt.Errorf("list drops: %w", err))
	}
	return list, nil
}

func scanDropGroup(row pgx.CollectableRow) (DropGroup, error) {
	var d DropGroup
	err := row.Scan(&d.Account, &d.EventID, &d.Reason, &d.Mode, &d.Enforced, &d.LastID,
		&d.Deliveries, &d.Mutations, &d.FirstAt, &d.LastAt, &d.FirstSeen, &d.Acknowledged)
	return d, err
}
