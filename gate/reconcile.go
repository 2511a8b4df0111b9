package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// reconcileBatch bounds one round, so that a backlog is worked in pieces.
const reconcileBatch = 500

// lookAgainAfter is how long an uncertain row rests between look-ups.
const lookAgainAfter = time.Minute

// Reconcile looks up, under their own keys, rows that are in flight for longer
// than StaleAfter and rows whose outcome is unknown, and settles what the
// target knows (incident 2). It never sends.
func (g *Gate) Reconcile(ctx context.Context, integration string) (Reconciled, error) {
	var done Reconciled
	target, err := g.Target(integration)
	if err != nil {
		return done, err
	}
	due, err := g.dueForLookUp(ctx, integration)
	if err != nil {
		return done, err
	}
	var errs []error
	for _, p := range due {
		state, err := g.resolve(ctx, target, p)
		if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return done, errors.Join(append(errs, err)...)
		}
		if err != nil { // one row that cannot be settled keeps no other waiting
			errs = append(errs, err)
			continue
		}
		done.add(state)
	}
	return done, errors.Join(errs...)
}

func (r *Reconciled) add(s State) {
	r.Looked++
	switch s {
	case Committed:
		r.Committed++
	case StRefused:
		r.Refused++
	case Unknown:
		r.Unknown++
	case Manual:
		r.Manual++
	}
}

// Recheck looks one row up now, for a caller who cannot wait for the round. A
// row that a send may still be under way for is ErrInFlight.
func (g *Gate) Recheck(ctx context.Context, mutationID int64) (Decision, error) {
	rows, err := g.pool.Query(ctx, dueSQL+` where r.mutation_id = $1 and r.state in ('in_flight', 'unknown', 'manual')`, mutationID)
	if err != nil {
		return Decision{}, storeError(fmt.Errorf("recheck M-%d: %w", mutationID, err))
	}
	found, err := pgx.CollectRows(rows, scanPending)
	if err != nil {
		return Decision{}, storeError(fmt.Errorf("recheck M-%d: %w", mutationID, err))
	}
	for _, p := range found {
		if p.state == InFlight && g.clock.Now().Sub(p.reservedAt) <= g.cfg.SendTimeout {
			return Decision{Verdict: Drop, Reason: ReasonReplay, Key: p.key, State: InFlight, MutationID: mutationID},
				fmt.Errorf("mutation M-%d: %w", mutationID, ErrInFlight)
		}
		target, err := g.Target(p.integration)
		if err != nil {
			return Decision{}, err
		}
		if _, err := g.resolve(ctx, target, p); err != nil {
			return Decision{}, err
		}
	}
	return g.statusOfMutation(ctx, mutationID)
}

const dueSQL = `
	select r.integration, r.key, r.fence, r.state, r.reserved_at, m.id, m.op, m.entity_type, m.entity_id, m.subject, m.body
	from reservations r join mutations m on m.id = r.mutation_id`

func scanPending(row pgx.CollectableRow) (pending, error) {
	var p pending
	var key, body []byte
	err := row.Scan(&p.integration, &key, &p.fence, &p.state, &p.reservedAt, &p.mutationID,
		&p.mutation.Op, &p.mutation.Type, &p.mutation.ID, &p.mutation.Subject, &body)
	if err != nil {
		return p, err
	}
	p.key, p.mutation.Body, p.by = Key(key), body, Job("reconcile")
	return p, nil
}

// dueForLookUp reads by the two partial indexes, oldest first.
func (g *Gate) dueForLookUp(ctx context.Context, integration string) ([]pending, error) {
	now := g.clock.Now()
	rows, err := g.pool.Query(ctx, `
		(`+dueSQL+` where r.integration = $1 and r.state = 'in_flight' and r.reserved_at < $2 order by r.reserved_at limit $4)
		union all
		(`+dueSQL+` where r.integration = $1 and r.state in ('unknown', 'manual') and (r.last_look_at is null or r.last_look_at < $3)
			order by r.reserved_at limit $4)`,
		integration, now.Add(-g.cfg.StaleAfter), now.Add(-lookAgainAfter), reconcileBatch)
	if err != nil {
		return nil, storeError(fmt.Errorf("find rows to look up: %w", err))
	}
	due, err := pgx.CollectRows(rows, scanPending)
	if err != nil {
		return nil, storeError(fmt.Errorf("find rows to look up: %w", err))
	}
	return due, nil
}

// resolve takes the row over under a new fence, asks the target, and settles.
// The slow worker that held the old fence can settle nothing afterwards. The
// version stays: what a person saw of the row has not changed.
func (g *Gate) resolve(ctx context.Context, target Target, p pending) (State, error) {
	tag, err := g.pool.Exec(ctx, `
		update reservations set fence = fence + 1, last_look_at = $4
		where key = $1 and fence = $2 and state = $3`, p.key[:], p.fence, p.state, g.clock.Now())
	if err != nil {
		return p.state, storeError(fmt.Errorf("take over M-%d: %w", p.mutationID, err))
	}
	if tag.RowsAffected() == 0 {
		return p.state, nil // another worker has it
	}
	p.fence++
	lookCtx, cancel := context.WithTimeout(ctx, g.cfg.SendTimeout)
	answer := target.LookUp(lookCtx, p.key, p.reservedAt)
	cancel()
	s, ok := settlementOfLookUp(answer, p)
	if !ok {
		return p.state, nil
	}
	got, err := g.settle(ctx, p, s)
	if err != nil {
		return p.state, err
	}
	return got.state, nil
}

// SettleByHand closes an unknown or manual row on a person's word: applied
// with the target's reference, or proved absent. It is bound to the version
// that the person saw; the note is the evidence.
func (g *Gate) SettleByHand(ctx context.Context, by Actor, mutationID, version int64, applied bool, ref, note string) error {
	if note == "" || len(note) > 2000 {
		return fmt.Errorf("a note of up to 2000 bytes is required: it is the evidence: %w", ErrMalformed)
	}
	rows, err := g.pool.Query(ctx, dueSQL+` where r.mutation_id = $1 and r.version = $2 and r.state in ('unknown', 'manual')`, mutationID, version)
	if err != nil {
		return storeError(fmt.Errorf("settle M-%d by hand: %w", mutationID, err))
	}
	p, err := pgx.CollectExactlyOneRow(rows, scanPending)
	if err != nil {
		return g.whyNotSettled(ctx, mutationID, err)
	}
	p.by = by
	s := settlement{event: EvSaysAbsent, detail: note}
	if applied {
		if ref == "" && p.mutation.ID == "" {
			return fmt.Errorf("say what the target calls it: the external reference is missing: %w", ErrMalformed)
		}
		if len(ref) > maxName || !cleanText(ref) {
			return fmt.Errorf("the external reference is longer than %d bytes, holds a control character or is not UTF-8: %w", maxName, ErrMalformed)
		}
		s.event, s.ref = EvSaysDone, ref
	}
	got, err := g.settle(ctx, p, s)
	if err != nil {
		return err
	}
	if !got.ours {
		return g.whyNotSettled(ctx, mutationID, ErrStale)
	}
	return nil
}

func (g *Gate) whyNotSettled(ctx context.Context, mutationID int64, cause error) error {
	var e DecidedError
	err := g.pool.QueryRow(ctx, `select state, coalesce(settled_by, ''), coalesce(settled_at, reserved_at) from reservations where mutation_id = $1`,
		mutationID).Scan(&e.State, &e.By, &e.At)
	switch {
	case err != nil && unreachable(err):
		return storeError(err)
	case err != nil:
		return fmt.Errorf("mutation M-%d: %w: %w", mutationID, ErrNotFound, cause)
	case e.By == "":
		return fmt.Errorf("mutation M-%d is %s and has moved: %w", mutationID, e.State, ErrStale)
	}
	e.What = mutationName(mutationID)
	return &e
}

// KeyStatus answers "what became of this key?".
func (g *Gate) KeyStatus(ctx context.Context, integration string, key Key) (Decision, error) {
	return g.status(ctx, `r.key = $1 and r.integration = $2`, key[:], integration)
}

func (g *Gate) statusOfMutation(ctx context.Context, mutationID int64) (Decision, error) {
	return g.status(ctx, `r.mutation_id = $1`, mutationID)
}

func (g *Gate) status(ctx context.Context, where string, args ...any) (Decision, error) {
	d := Decision{Verdict: Forward}
	var key []byte
	err := g.pool.QueryRow(ctx, `
		select r.key, r.state, r.external_ref, r.detail, m.received_at, m.id
		from reservations r join mutations m on m.id = r.mutation_id where `+where, args...).
		Scan(&key, &d.State, &d.ExternalRef, &d.Detail, &d.FirstSeen, &d.MutationID)
	if noRows(err) {
		return d, fmt.Errorf("no mutation has that key: %w", ErrNotFound)
	}
	if err != nil {
		return d, storeError(fmt.Errorf("look up a key: %w", err))
	}
	d.Key = Key(key)
	if d.State == Unknown || d.State == Manual {
		d.Reason = ReasonUncertainOutcome
	}
	return d, nil
}
