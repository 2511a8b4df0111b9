package gate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// CloseKeys closes what a rollback undid: the reservations become rolled_back,
// their natural keys get tombstones and their events are marked, so that a
// redelivery is held; hash pairs with one of them are undone. It runs inside
// the caller's transaction, beside the row that says the compensation is done.
func (g *Gate) CloseKeys(ctx context.Context, tx pgx.Tx, by Actor, rollbackID int64, mutationIDs []int64) error {
	now := g.clock.Now()
	next, err := Committed.Next(EvUndone)
	if err != nil {
		return err
	}
	statements := []struct {
		sql  string
		args []any
	}{
		{`update reservations set state = $2, version = version + 1, settled_at = $3, settled_by = $4
		  where mutation_id = any($1) and state = 'committed'`, []any{mutationIDs, next, now, by.Name}},
		{`insert into tombstones (integration, natural_key, rollback_id, mutation_id, at)
		  select distinct on (r.integration, r.natural_key) r.integration, r.natural_key, $2::bigint, r.mutation_id, $3::timestamptz
		  from reservations r where r.mutation_id = any($1)
		  on conflict (integration, natural_key) do nothing`, []any{mutationIDs, rollbackID, now}},
		{`update events e set rollback_id = $2 from mutations m
		  where m.id = any($1) and m.event_id <> '' and e.integration = m.integration and e.account = m.account
		    and e.event_id = m.event_id and e.rollback_id is null`, []any{mutationIDs, rollbackID}},
		{`update hash_pairs set state = 'undone', version = version + 1, rollback_id = $2,
		         decided_at = coalesce(decided_at, $3), decided_by = coalesce(decided_by, $4)
		  where (first_mutation = any($1) or second_mutation = any($1)) and state in ('open', 'duplicate')`,
			[]any{mutationIDs, rollbackID, now, by.Name}},
	}
	for _, s := range statements {
		if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
			return fmt.Errorf("close the keys of R-%d: %w", rollbackID, err)
		}
	}
	return g.auditClosed(ctx, tx, by, rollbackID, mutationIDs, now)
}

func (g *Gate) auditClosed(ctx context.Context, tx pgx.Tx, by Actor, rollbackID int64, mutationIDs []int64, now time.Time) error {
	rows, err := tx.Query(ctx, `select id, integration from mutations where id = any($1) order by id`, mutationIDs)
	if err != nil {
		return fmt.Errorf("close the keys of R-%d: %w", rollbackID, err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (audit.Entry, error) {
		var id int64
		var integration string
		err := row.Scan(&id, &integration)
		return entry(now, by, integration, "mutation.rolled_back", mutationName(id), map[string]any{"rollback": rollbackID}), err
	})
	if err != nil {
		return fmt.Errorf("close the keys of R-%d: %w", rollbackID, err)
	}
	return audit.Append(ctx, tx, entries...)
}

// Compensate sends one row of an approved rollback through the same gate: its
// key comes from plan and row, so a repeat is answered from its reservation.
func (g *Gate) Compensate(ctx context.Context, by Actor, c Compensation) (Decision, error) {
	target, err := g.Target(c.Integration)
	if err != nil {
		return Decision{}, err
	}
	a := attempt{
		by: by, fingerprint: Fingerprint(c.Mutation), rollback: c.RollbackID, row: c.Row, ifVersion: c.IfVersion,
		natural: compensationKey(c),
		req: Request{
			Integration: c.Integration, Mutation: c.Mutation, Agent: "rollback", Run: fmt.Sprintf("R-%d", c.RollbackID),
			Event: EventRef{Account: "sluis", ID: fmt.Sprintf("R-%d", c.RollbackID)}, Effect: fmt.Sprintf("row-%d", c.Row), Last: true,
		},
	}
	for range admitTries {
		d, p, err := g.admitCompensation(ctx, a)
		if err != nil && errors.Is(err, errRace) {
			continue
		}
		if err != nil || p == nil {
			return d, err
		}
		return g.sendAndSettle(ctx, target, d, *p)
	}
	return Decision{Key: a.natural, State: InFlight}, fmt.Errorf("rollback R-%d row %d: %w", c.RollbackID, c.Row, ErrInFlight)
}

// compensationKey is a function of the approved plan and the row alone.
func compensationKey(c Compensation) Key {
	return DerivedKey("rollback", c.Integration, strconv.FormatInt(c.RollbackID, 10), strconv.Itoa(c.Row), string(c.PlanHash[:]))
}

// admitCompensation reserves a row of a plan. A person approved it, so no
// policy, mode or freeze holds it; its key alone decides.
func (g *Gate) admitCompensation(ctx context.Context, a attempt) (Decision, *pending, error) {
	now := g.clock.Now()
	s, err := g.look(ctx, a)
	if err != nil {
		return Decision{}, nil, err
	}
	d := Decision{Verdict: Forward, Key: a.natural, FirstSeen: s.firstSeen(now)}
	known := s.reserved
	switch {
	case known == nil:
		return g.admitForward(ctx, a, s, forward(), d, now)
	case known.fingerprint != a.fingerprint:
		return d, nil, fmt.Errorf("rollback R-%d row %d was sent before with another body: %w", a.rollback, a.row, ErrStale)
	case known.state == StRefused:
		return g.admitForward(ctx, a, s, ruling{verdict: Forward, reserve: true}, d, now)
	}
	d.Verdict, d.Reason = Drop, ReasonReplay
	d.State, d.ExternalRef, d.MutationID = known.state, known.ref, known.mutationID
	if known.state == InFlight {
		return d, nil, fmt.Errorf("rollback R-%d row %d: %w", a.rollback, a.row, ErrInFlight)
	}
	return d, nil, nil
}
