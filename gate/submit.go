package gate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits on what an agent may send, in bytes and items.
const (
	MaxBody     = 256 << 10 // a mutation's body
	maxName     = 512       // an id, effect, run or other name
	maxEvidence = 64        // evidence ids
)

// admitTries bounds how often an admission that lost a race is judged again:
// each loss means that another caller got ahead, so the second look nearly
// always settles it.
const admitTries = 5

// errRace says that the rows moved between the look and the act.
var errRace = errors.New("lost a race, look again")

// Submit admits one mutation, sends it where admission says so, and settles
// the outcome. The Decision is truthful also beside an error:
//
//   - ErrInFlight: the key is being sent by another caller; ask again.
//   - ErrUnavailable: the store is down. When Decision.State is in_flight the
//     mutation was reserved and may have been sent: ask for the key later.
//   - ErrMalformed: nothing was recorded.
//   - ErrNotFound: no such integration.
func (g *Gate) Submit(ctx context.Context, by Actor, req Request) (Decision, error) {
	if err := checkRequest(&req); err != nil {
		return Decision{}, err
	}
	target, err := g.Target(req.Integration)
	if err != nil {
		return Decision{}, err
	}
	work := attempt{by: by, req: req, fingerprint: Fingerprint(req.Mutation)}
	if req.Event.ID != "" {
		work.natural = NaturalKey(req.Integration, req.Event, req.Effect)
	}
	for range admitTries {
		d, p, err := g.admitWithin(ctx, work)
		if errors.Is(err, errRace) {
			continue
		}
		if err != nil || p == nil {
			return d, err
		}
		return g.sendAndSettle(ctx, target, d, *p)
	}
	return Decision{Key: work.natural, State: InFlight}, fmt.Errorf("too many callers send this key at once: %w", ErrInFlight)
}

// storeLimit bounds the store's part of one admission: an agent is told
// "unavailable" rather than left waiting for a connection.
const storeLimit = 10 * time.Second

func (g *Gate) admitWithin(ctx context.Context, a attempt) (Decision, *pending, error) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return g.admit(ctx, a)
}

// attempt is one request on its way through admission.
type attempt struct {
	by          Actor
	req         Request
	natural     Key // zero when no key can be derived
	fingerprint [32]byte
	rollback    int64 // a compensation's plan and row
	row         int
	ifVersion   *int64
}

// pending is a reserved mutation that has to be sent and settled.
type pending struct {
	integration string
	key         Key
	fence       int64
	state       State
	mutationID  int64
	mutation    Mutation
	by          Actor
	ifVersion   *int64
	reservedAt  time.Time
}

// sendAndSettle sends outside any transaction, and settles whatever came back.
// The caller's own deadline does not cut it short: what is reserved is sent
// and settled, or left to reconciliation.
func (g *Gate) sendAndSettle(ctx context.Context, target Target, d Decision, p pending) (Decision, error) {
	ctx = context.WithoutCancel(ctx)
	sendCtx, cancel := context.WithTimeout(ctx, g.cfg.SendTimeout)
	outcome := target.Apply(sendCtx, Send{Key: p.key, Mutation: p.mutation, IfVersion: p.ifVersion, Actor: p.by.Name})
	cancel()
	state, err := g.settleRetry(ctx, p, settlementOf(outcome, p))
	if err != nil {
		g.log.Error("sent, but not settled: reconciliation will look it up", "mutation", p.mutationID, "err", err)
		d.State = InFlight
		d.Detail = "sent, but the outcome could not be recorded; ask for the key later"
		return d, err
	}
	d.State, d.ExternalRef, d.Detail = state.state, state.ref, outcome.Detail
	if state.state == Unknown || state.state == Manual {
		d.Reason = ReasonUncertainOutcome
	}
	return d, nil
}

// settleRetry settles, and tries again briefly where the store is away for a
// moment, since a row left in flight costs two minutes.
func (g *Gate) settleRetry(ctx context.Context, p pending, s settlement) (settled, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	wait := 50 * time.Millisecond
	for {
		got, err := g.settle(ctx, p, s)
		if err == nil || !errors.Is(err, ErrUnavailable) {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, err
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// checkRequest refuses what no row could hold, before anything is stored, and
// makes the body canonical: the stored bytes are what is sent.
func checkRequest(req *Request) error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	m := req.Mutation
	add(!m.Op.Valid(), "mutation.op %q is not one of create, update, delete", m.Op)
	add(m.Type == "", "mutation.type is missing")
	add(m.Subject == "", "mutation.subject is missing: say whom it concerns")
	add(m.ID == "" && m.Op != OpCreate, "mutation.id is missing: an %s needs the entity's id", m.Op)
	add(req.Agent == "", "agent is missing")
	add(req.Run == "", "run is missing: it says which handling of the event this is")
	add(len(req.Evidence) > maxEvidence, "evidence lists more than %d ids", maxEvidence)
	texts := map[string]string{
		"event.account": req.Event.Account, "event.event_id": req.Event.ID, "event.occurred_at": req.Event.OccurredAt,
		"effect": req.Effect, "agent": req.Agent, "run": req.Run,
		"mutation.type": m.Type, "mutation.id": m.ID, "mutation.subject": m.Subject,
	}
	if req.Basis != nil {
		texts["basis.type"], texts["basis.id"] = req.Basis.Type, req.Basis.ID
	}
	for i, id := range req.Evidence[:min(len(req.Evidence), maxEvidence)] {
		texts[fmt.Sprintf("evidence[%d]", i)] = id
	}
	for name, v := range texts {
		add(len(v) > maxName, "%s is longer than %d bytes", name, maxName)
		add(!cleanText(v), "%s holds a control character or is not UTF-8", name)
	}
	body, err := Canonical(m.Body, MaxBody)
	if err == nil {
		_, err = Fields(body)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("mutation.body must be a JSON object: %w", err))
	}
	req.Mutation.Body = body
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrMalformed, errors.Join(errs...))
}
