package gate

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// forwardReleased sends a held mutation on a person's word. Its natural key is
// used where it is free. Where the hold was about that key (a conflict, a
// rollback), the person decides to send beside it, under a key of the item.
// The same item never sends twice: a repeat is answered from its reservation.
func (g *Gate) forwardReleased(ctx context.Context, by Actor, m MutationRecord, item int64) (Decision, error) {
	target, err := g.Target(m.Integration)
	if err != nil {
		return Decision{}, err
	}
	a := attempt{
		by: by, natural: m.NaturalKey, fingerprint: m.Fingerprint,
		req: Request{
			Integration: m.Integration, Event: m.Event, Effect: m.Effect, Agent: m.Agent, Run: m.Run,
			Mutation: m.Mutation, Basis: m.Basis, Evidence: m.Evidence,
		},
	}
	if a.natural == (Key{}) || m.Reason == ReasonKeyConflict || m.Reason == ReasonRolledBack {
		a.natural = DerivedKey("release", m.Integration, strconv.FormatInt(item, 10))
	}
	for range admitTries {
		d, p, err := g.admitReleased(ctx, a)
		if err != nil && errors.Is(err, errRace) {
			continue
		}
		if err != nil || p == nil {
			return d, err
		}
		return g.sendAndSettle(ctx, target, d, *p)
	}
	return Decision{Key: a.natural, State: InFlight}, fmt.Errorf("item Q-%d: %w", item, ErrInFlight)
}

// admitReleased reserves a released mutation's key, or answers from the row
// that has it.
func (g *Gate) admitReleased(ctx context.Context, a attempt) (Decision, *pending, error) {
	now := g.clock.Now()
	s, err := g.look(ctx, a)
	if err != nil {
		return Decision{}, nil, err
	}
	d := Decision{Verdict: Forward, Key: a.natural, FirstSeen: s.firstSeen(now)}
	s.claimed = true // a release is nobody's run: it claims nothing

	if s.tombOf != 0 { // closed since the release was claimed
		d.Verdict, d.Reason, d.Detail = Quarantine, ReasonRolledBack, fmt.Sprintf("closed by rollback R-%d", s.tombOf)
		return d, nil, nil
	}
	if s.reserved == nil {
		return g.admitForward(ctx, a, s, forward(), d, now)
	}
	r, _ := decideKnown(a.fingerprint, s)
	if r.verdict == Forward {
		return g.admitForward(ctx, a, s, r, d, now)
	}
	d.Verdict, d.Reason, d.Detail = r.verdict, r.reason, r.detail
	d.State, d.ExternalRef, d.MutationID = s.reserved.state, s.reserved.ref, s.reserved.mutationID
	if r.retry {
		return d, nil, fmt.Errorf("mutation M-%d: %w", d.MutationID, ErrInFlight)
	}
	return d, nil, nil
}

// handOnReleased makes a held delivery's event available to the agent. One
// that came without an event id gets the delivery's own, so that the agent can
// name it. A payload that cannot be parsed is ErrMalformed: it can only be
// rejected.
func (g *Gate) handOnReleased(ctx context.Context, tx pgx.Tx, delivery DeliveryRecord) error {
	if delivery.EventSeq != 0 {
		_, err := tx.Exec(ctx, `update events set state = 'stored' where seq = $1 and state = 'quarantined'`, delivery.EventSeq)
		if err != nil {
			return fmt.Errorf("hand on delivery %d: %w", delivery.ID, err)
		}
		return nil
	}
	source, ok := g.sources[delivery.Integration]
	if !ok {
		return fmt.Errorf("integration %q has no source: %w", delivery.Integration, ErrNotFound)
	}
	a := readArrival(delivery.Integration, source, delivery.Payload)
	if a.fault != nil {
		return fmt.Errorf("delivery %d cannot be read, so no agent can act on it: %s: %w", delivery.ID, a.fault.detail, ErrMalformed)
	}
	a.ref.ID = "delivery-" + strconv.FormatInt(delivery.ID, 10)
	seq, err := storeEvent(ctx, tx, a, forward(), true, g.clock.Now())
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `update deliveries set event_seq = $2 where id = $1`, delivery.ID, seq); err != nil {
		return fmt.Errorf("hand on delivery %d: %w", delivery.ID, err)
	}
	return nil
}
