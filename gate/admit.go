package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// admit judges one attempt and, in one transaction, either reserves it
// (pending is returned: the caller sends) or records why it is not sent.
// errRace means that another caller moved the rows: judge again.
func (g *Gate) admit(ctx context.Context, a attempt) (Decision, *pending, error) {
	now := g.clock.Now()
	s, err := g.look(ctx, a)
	if err != nil {
		return Decision{}, nil, err
	}
	r := decide(a.req, a.fingerprint, s, now)
	enforced := s.mode == ModeEnforce || r.always()
	d := Decision{Verdict: r.verdict, Reason: r.reason, Key: a.natural, Detail: r.detail, FirstSeen: s.firstSeen(now)}
	if s.reserved != nil {
		d.State, d.ExternalRef, d.MutationID = s.reserved.state, s.reserved.ref, s.reserved.mutationID
	}
	switch {
	case r.verdict == Forward:
		return g.admitForward(ctx, a, s, r, d, now)
	case enforced && r.retry:
		g.countAlone(ctx, a.req.Integration, now, countConflict)
		return d, nil, fmt.Errorf("mutation M-%d: %w", s.reserved.mutationID, ErrInFlight)
	case enforced:
		d, err = g.refuse(ctx, a, s, r, d, now)
		return d, nil, err
	default:
		return g.passThrough(ctx, a, s, r, d, now)
	}
}

// firstSeen is when the key, else the event, else this request was first seen.
func (s seen) firstSeen(now time.Time) time.Time {
	switch {
	case s.reserved != nil:
		return s.reserved.firstAt
	case s.event:
		return s.firstAt
	}
	return now
}

// look reads in one round trip all that decide needs.
func (g *Gate) look(ctx context.Context, a attempt) (seen, error) {
	var (
		s        seen
		state    *string
		run      *string
		firstAt  *time.Time
		closedAt *time.Time
		tomb     *int64
		undone   *int64
		fp       []byte
		rState   *State
		fence    *int64
		ref      *string
		mutation *int64
		seenAt   *time.Time
	)
	err := g.pool.QueryRow(ctx, `
		select i.mode, i.frozen, i.max_skew, e.state, e.run, e.received_at, e.closed_at, e.rollback_id, t.rollback_id,
		       r.state, r.fence, r.external_ref, r.mutation_id, m.fingerprint, m.received_at
		from integrations i
		left join events e on e.integration = i.id and e.account = $2 and e.event_id = $3
		left join tombstones t on t.integration = i.id and t.natural_key = $4
		left join reservations r on r.key = $4
		left join mutations m on m.id = r.mutation_id
		where i.id = $1`,
		a.req.Integration, a.req.Event.Account, a.req.Event.ID, a.keyBytes()).Scan(
		&s.mode, &s.frozen, &s.maxSkew, &state, &run, &firstAt, &closedAt, &undone, &tomb,
		&rState, &fence, &ref, &mutation, &fp, &seenAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("integration %q: %w", a.req.Integration, ErrNotFound)
	}
	if err != nil {
		return s, storeError(fmt.Errorf("look up the key: %w", err))
	}
	if state != nil && *state != eventQuarantined && *state != eventRejected {
		s.event, s.state, s.firstAt = true, *state, *firstAt
	}
	if run != nil {
		s.claimed, s.run, s.closed = true, *run, closedAt != nil
	}
	if undone != nil {
		s.rolledBack = *undone
	}
	if tomb != nil {
		s.tombOf = *tomb
	}
	if rState != nil {
		s.reserved = &reservation{
			state: *rState, fence: *fence, ref: *ref,
			mutationID: *mutation, fingerprint: [32]byte(fp), firstAt: *seenAt,
		}
	}
	return s, nil
}

// keyBytes is the natural key for a parameter; nil when there is none.
func (a attempt) keyBytes() []byte {
	if a.natural == (Key{}) {
		return nil
	}
	return a.natural[:]
}

// admitForward reserves the natural key, afresh or again after a refusal.
func (g *Gate) admitForward(ctx context.Context, a attempt, s seen, r ruling, d Decision, now time.Time) (Decision, *pending, error) {
	p := &pending{
		integration: a.req.Integration, key: a.natural, fence: 1, state: InFlight,
		mutation: a.req.Mutation, by: a.by, ifVersion: a.ifVersion, reservedAt: now,
	}
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if !s.claimed && a.rollback == 0 {
			if err := claimEvent(ctx, tx, a.req, now); err != nil {
				return err
			}
		}
		if r.reserve {
			return g.reserveAgain(ctx, tx, a, s, p, now)
		}
		return g.reserve(ctx, tx, a, s, ruling{verdict: Forward}, p, now)
	})
	if err != nil {
		return d, nil, err
	}
	g.Touch(a.req.Integration, "in_flight")
	d.State, d.MutationID, d.FirstSeen = InFlight, p.mutationID, s.firstSeen(now)
	return d, p, nil
}

// passThrough forwards, in off and shadow, what enforce would not: under its
// natural key where that is free, else under a key of its own, so that the
// target applies it as it would without the gate. In shadow the decision is
// recorded beside it.
func (g *Gate) passThrough(ctx context.Context, a attempt, s seen, r ruling, d Decision, now time.Time) (Decision, *pending, error) {
	if s.mode == ModeOff {
		r, d.Reason, d.Detail = forward(), "", ""
	}
	p := &pending{
		integration: a.req.Integration, key: a.natural, fence: 1, state: InFlight,
		mutation: a.req.Mutation, by: a.by, reservedAt: now,
	}
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if !s.claimed && a.req.Event.ID != "" {
			if err := claimEvent(ctx, tx, a.req, now); err != nil && !errors.Is(err, errRace) {
				return err
			}
		}
		if s.reserved == nil && a.natural != (Key{}) {
			return g.reserve(ctx, tx, a, s, r, p, now)
		}
		id, err := g.insertMutation(ctx, tx, a, s, r, true, now)
		if err != nil {
			return err
		}
		p.mutationID, p.key = id, DerivedKey("pass", a.natural.String(), strconv.FormatInt(id, 10))
		if a.natural == (Key{}) {
			a.natural = p.key
		}
		return g.takeKey(ctx, tx, a, s, r, p, now)
	})
	if err != nil {
		return d, nil, err
	}
	g.Touch(a.req.Integration, "signals")
	d.Verdict, d.State, d.MutationID, d.ExternalRef = Forward, InFlight, p.mutationID, ""
	return d, p, nil
}

// claimEvent makes the caller's run the one that handles the event, and closes
// the event where this is its last effect. errRace when another run has it.
func claimEvent(ctx context.Context, tx pgx.Tx, req Request, now time.Time) error {
	tag, err := tx.Exec(ctx, `
		insert into events (integration, account, event_id, occurred_raw, received_at, state, run, claimed_at)
		values ($1, $2, $3, $4, $5, 'known', $6, $5)
		on conflict (integration, account, event_id) do update set run = excluded.run, claimed_at = excluded.claimed_at
		where events.run is null`,
		req.Integration, req.Event.Account, req.Event.ID, req.Event.OccurredAt, now, req.Run)
	if err != nil {
		return fmt.Errorf("claim the event: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errRace
	}
	return nil
}

const closeEventSQL = `
	update events set closed_at = $4, state = case when state = 'stored' then 'applied' else state end
	where integration = $1 and account = $2 and event_id = $3 and run = $5 and closed_at is null`

// reserve writes down that we are about to act: the mutation, its key, the
// audit record, the counters. The unique key decides between callers.
func (g *Gate) reserve(ctx context.Context, tx pgx.Tx, a attempt, s seen, r ruling, p *pending, now time.Time) error {
	id, err := g.insertMutation(ctx, tx, a, s, r, true, now)
	if err != nil {
		return err
	}
	p.mutationID = id
	return g.takeKey(ctx, tx, a, s, r, p, now)
}

// takeKey takes the key and records the forward in one round trip. errRace: a
// row that another caller holds makes the whole transaction roll back.
func (g *Gate) takeKey(ctx context.Context, tx pgx.Tx, a attempt, s seen, r ruling, p *pending, now time.Time) error {
	batch := &pgx.Batch{}
	taken := false
	batch.Queue(`
		insert into reservations (key, integration, natural_key, mutation_id, state, attempt, fence, reserved_at)
		values ($1, $2, $3, $4, 'in_flight', 1, 1, $5) on conflict (key) do nothing`,
		p.key[:], a.req.Integration, a.natural[:], p.mutationID, now).
		Exec(func(tag pgconnTag) error { taken = tag.RowsAffected() == 1; return nil })
	if err := g.recordForward(ctx, tx, batch, a, s, r, p, now); err != nil {
		return err
	}
	if !taken {
		return errRace
	}
	return nil
}

// reserveAgain takes a refused key for a new attempt. The new mutation row
// gets the key, so that what is applied later also has a later number.
func (g *Gate) reserveAgain(ctx context.Context, tx pgx.Tx, a attempt, s seen, p *pending, now time.Time) error {
	next, err := s.reserved.state.Next(EvReserve)
	if err != nil {
		return err
	}
	id, err := g.insertMutation(ctx, tx, a, s, forward(), true, now)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		update reservations set state = $3, attempt = attempt + 1, fence = fence + 1, version = version + 1,
		       reserved_at = $4, settled_at = null, settled_by = null, detail = '', mutation_id = $5
		where key = $1 and fence = $2 and state = 'refused'`,
		p.key[:], s.reserved.fence, next, now, id)
	if err != nil {
		return fmt.Errorf("reserve the key again: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errRace
	}
	p.mutationID, p.fence = id, s.reserved.fence+1
	return g.recordForward(ctx, tx, &pgx.Batch{}, a, s, forward(), p, now)
}

// recordForward adds to the batch what belongs to every forward, and runs it:
// the closing of the event, the shadow's decision, counters and the audit
// record.
func (g *Gate) recordForward(ctx context.Context, tx pgx.Tx, batch *pgx.Batch, a attempt, s seen, r ruling, p *pending, now time.Time) error {
	if (a.req.Last || a.req.Effect == "") && a.rollback == 0 && a.req.Event.ID != "" {
		batch.Queue(closeEventSQL, a.req.Integration, a.req.Event.Account, a.req.Event.ID, now, a.req.Run)
	}
	if r.verdict != Forward && s.mode == ModeShadow {
		recordDecision(batch, a.decisionRow(s, r, p.mutationID, false, now))
		g.count(batch, a.req.Integration, now, counterOf(r.verdict), 1)
		if r.reason == ReasonReplay {
			g.count(batch, a.req.Integration, now, countReplay, 1)
		}
	}
	g.count(batch, a.req.Integration, now, countForward, 1)
	err := audit.Queue(batch, entry(now, a.by, a.req.Integration, "mutation.reserved", mutationName(p.mutationID), map[string]any{
		"key": p.key.String(), "event": a.req.Event.ID, "effect": a.req.Effect, "run": a.req.Run,
		"op": string(a.req.Mutation.Op), "entity": a.req.Mutation.Type + "/" + a.req.Mutation.ID,
		"fence": p.fence, "mode": string(s.mode), "would": string(r.reason),
	}))
	if err == nil {
		err = tx.SendBatch(ctx, batch).Close()
	}
	if err != nil {
		return fmt.Errorf("reserve the key: %w", err)
	}
	return nil
}

// refuse records a drop or a hold: the mutation, the decision with its reason,
// the item for a person, counters and the audit record.
func (g *Gate) refuse(ctx context.Context, a attempt, s seen, r ruling, d Decision, now time.Time) (Decision, error) {
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		id, err := g.insertMutation(ctx, tx, a, s, r, false, now)
		if err != nil {
			return err
		}
		action := "mutation.dropped"
		if r.verdict == Quarantine {
			action = "mutation.held"
			if d.Item, err = g.holdMutation(ctx, tx, a, s, r, id, now); err != nil {
				return err
			}
		}
		batch := &pgx.Batch{}
		recordDecision(batch, a.decisionRow(s, r, id, true, now))
		g.count(batch, a.req.Integration, now, counterOf(r.verdict), 1)
		if r.reason == ReasonReplay {
			g.count(batch, a.req.Integration, now, countReplay, 1)
		}
		if d.MutationID == 0 {
			d.MutationID = id
		}
		err = audit.Queue(batch, entry(now, a.by, a.req.Integration, action, mutationName(id), map[string]any{
			"reason": string(r.reason), "detail": r.detail, "event": a.req.Event.ID, "effect": a.req.Effect,
			"run": a.req.Run, "item": d.Item,
		}))
		if err == nil {
			err = tx.SendBatch(ctx, batch).Close()
		}
		if err != nil {
			return fmt.Errorf("record the decision: %w", err)
		}
		return nil
	})
	if err == nil {
		g.Touch(a.req.Integration, "signals")
		g.Touch(a.req.Integration, "items")
	}
	return d, err
}

// insertMutation keeps what was asked for, whatever was decided.
func (g *Gate) insertMutation(ctx context.Context, tx pgx.Tx, a attempt, s seen, r ruling, forwarded bool, now time.Time) (int64, error) {
	basis, evidence, err := a.documents()
	if err != nil {
		return 0, err
	}
	var rollback *int64
	var row *int
	if a.rollback != 0 {
		rollback, row = &a.rollback, &a.row
	}
	m := a.req.Mutation
	var id int64
	err = tx.QueryRow(ctx, `
		insert into mutations (integration, natural_key, account, event_id, effect, occurred_raw, agent, run,
			op, entity_type, entity_id, subject, body, fingerprint, basis, evidence, rollback_id, rollback_row,
			received_at, mode, decision, reason, forwarded)
		values (@integration, @natural_key, @account, @event_id, @effect, @occurred_raw, @agent, @run,
			@op, @entity_type, @entity_id, @subject, @body, @fingerprint, @basis, @evidence, @rollback_id, @rollback_row,
			@received_at, @mode, @decision, @reason, @forwarded)
		returning id`,
		pgx.NamedArgs{
			"integration": a.req.Integration, "natural_key": a.keyBytes(), "account": a.req.Event.Account,
			"event_id": a.req.Event.ID, "effect": a.req.Effect, "occurred_raw": a.req.Event.OccurredAt,
			"agent": a.req.Agent, "run": a.req.Run, "op": m.Op, "entity_type": m.Type, "entity_id": m.ID,
			"subject": m.Subject, "body": []byte(m.Body), "fingerprint": a.fingerprint[:], "basis": basis,
			"evidence": evidence, "rollback_id": rollback, "rollback_row": row, "received_at": now,
			"mode": s.mode, "decision": r.verdict, "reason": r.reason, "forwarded": forwarded,
		}).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("record the mutation: %w", err)
	}
	return id, nil
}

// documents are the basis and the evidence as JSON, nil where there is none.
func (a attempt) documents() (basis, evidence []byte, err error) {
	if a.req.Basis != nil {
		if basis, err = json.Marshal(a.req.Basis); err != nil {
			return nil, nil, fmt.Errorf("basis: %w", err)
		}
	}
	if len(a.req.Evidence) > 0 {
		if evidence, err = json.Marshal(a.req.Evidence); err != nil {
			return nil, nil, fmt.Errorf("evidence: %w", err)
		}
	}
	return basis, evidence, nil
}

// countAlone counts what has no transaction of its own; a lost count is logged.
func (g *Gate) countAlone(ctx context.Context, integration string, at time.Time, name string) {
	batch := &pgx.Batch{}
	g.count(batch, integration, at, name, 1)
	if err := g.pool.SendBatch(ctx, batch).Close(); err != nil {
		g.log.Warn("a count was lost", "name", name, "err", err)
	}
}

func counterOf(v Verdict) string {
	if v == Drop {
		return countDrop
	}
	return countQuarantine
}

func mutationName(id int64) string { return "M-" + strconv.FormatInt(id, 10) }
