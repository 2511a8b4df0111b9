package gate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// MaxDelivery is how large one delivery may be, in bytes.
const MaxDelivery = 1 << 20

// The states of an event in the inbox. Known: an agent named it before its
// delivery came. Stored is the receipt, applied the processing (incident 4).
const (
	eventKnown       = "known"
	eventStored      = "stored"
	eventApplied     = "applied"
	eventQuarantined = "quarantined"
	eventRejected    = "rejected"
)

// arrival is one delivery on its way into the inbox.
type arrival struct {
	integration string
	raw         []byte
	canonical   json.RawMessage // nil when raw cannot be parsed
	fingerprint [32]byte
	ref         EventRef
	kind        string
	fault       *ruling // why it cannot be parsed
}

// known is what the inbox holds of the same event.
type known struct {
	integ       Integration
	seq         int64
	receivedAt  time.Time
	fingerprint []byte
	closed      bool
	rollback    int64
}

// Receive stores one delivery before anything else happens with it, and says
// what became of it. The receipt is given after the inbox transaction has
// committed: ErrUnavailable means that the provider has to deliver again.
func (g *Gate) Receive(ctx context.Context, by Actor, integration string, raw []byte) (Receipt, error) {
	if len(raw) > MaxDelivery {
		return Receipt{}, fmt.Errorf("a delivery may hold %d bytes: %w", MaxDelivery, ErrMalformed)
	}
	source, ok := g.sources[integration]
	if !ok {
		return Receipt{}, fmt.Errorf("integration %q has no source: %w", integration, ErrNotFound)
	}
	a := readArrival(integration, source, raw)
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	for range admitTries {
		r, err := g.receive(ctx, by, a)
		if errors.Is(err, errRace) {
			continue
		}
		return r, err
	}
	return Receipt{}, fmt.Errorf("too many deliveries of this event at once: %w", ErrUnavailable)
}

// readArrival parses strictly and identifies the event.
func readArrival(integration string, source Source, raw []byte) arrival {
	a := arrival{integration: integration, raw: raw, fingerprint: sha256.Sum256(raw)}
	canonical, err := Canonical(raw, MaxDelivery)
	var bad *ParseError
	if errors.As(err, &bad) {
		r := hold(bad.Reason, "at byte %d: %s", bad.Offset, bad.Msg)
		a.fault = &r
		return a
	}
	a.canonical, a.fingerprint = canonical, sha256.Sum256(canonical)
	a.ref, a.kind = source.Identify(canonical)
	for _, v := range []string{a.ref.Account, a.ref.ID, a.ref.OccurredAt, a.kind} {
		if len(v) > maxName || !cleanText(v) {
			r := hold(ReasonMalformedBody, "an identifying field is longer than %d bytes or holds a control character", maxName)
			a.fault, a.ref, a.kind = &r, EventRef{}, ""
			return a
		}
	}
	return a
}

// judge decides on a delivery, in the order of the protocol.
func (a arrival) judge(k known, now time.Time) ruling {
	switch {
	case a.fault != nil:
		return *a.fault
	case a.ref.ID == "":
		return hold(ReasonMissingEventID, "the delivery has no event id, so a repeat could not be recognised")
	case k.rollback != 0:
		return hold(ReasonRolledBack, "blocked by rollback R-%d", k.rollback)
	case k.fingerprint != nil && [32]byte(k.fingerprint) != a.fingerprint:
		return hold(ReasonKeyConflict, "the event id was used before for another payload")
	case k.fingerprint != nil:
		return drop("the event was first delivered at %s", k.receivedAt.UTC().Format(time.RFC3339))
	case k.integ.Frozen:
		return hold(ReasonFrozen, "the integration is frozen: everything new is held")
	}
	s := seen{maxSkew: k.integ.MaxSkew, event: k.seq != 0, firstAt: k.receivedAt}
	return decideTime(a.ref.OccurredAt, s, now)
}

func (g *Gate) receive(ctx context.Context, by Actor, a arrival) (Receipt, error) {
	now := g.clock.Now()
	var r Receipt
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		k, err := lookEvent(ctx, tx, a)
		if err != nil {
			return err
		}
		rule := a.judge(k, now)
		enforced := k.integ.Mode == ModeEnforce || rule.always()
		r = Receipt{EventSeq: k.seq, Disposition: dispositionOf(rule), Reason: rule.reason, FirstSeen: now}
		r.HandOn = !k.closed && rule.verdict == Forward || rule.verdict != Forward && !enforced
		if k.seq != 0 {
			r.FirstSeen = k.receivedAt
		}
		if k.fingerprint == nil && a.ref.ID != "" {
			if r.EventSeq, err = storeEvent(ctx, tx, a, rule, r.HandOn, now); err != nil {
				return err
			}
		}
		if r.ID, err = insertDelivery(ctx, tx, a, k, r, now); err != nil {
			return err
		}
		return g.recordDelivery(ctx, tx, by, a, k, rule, enforced, &r, now)
	})
	if err != nil {
		return Receipt{}, err
	}
	g.Touch(a.integration, "signals")
	return r, nil
}

func dispositionOf(r ruling) Disposition {
	switch r.verdict {
	case Drop:
		return Duplicate
	case Quarantine:
		return Quarantined
	}
	return Stored
}

// lookEvent reads the integration and what the inbox holds of the event.
func lookEvent(ctx context.Context, tx pgx.Tx, a arrival) (known, error) {
	var k known
	var seq, rollback *int64
	var at, closed *time.Time
	err := tx.QueryRow(ctx, `
		select i.mode, i.frozen, i.max_skew, e.seq, e.received_at, e.fingerprint, e.closed_at, e.rollback_id
		from integrations i
		left join events e on e.integration = i.id and e.account = $2 and e.event_id = $3 and $3 <> ''
		where i.id = $1`, a.integration, a.ref.Account, a.ref.ID).
		Scan(&k.integ.Mode, &k.integ.Frozen, &k.integ.MaxSkew, &seq, &at, &k.fingerprint, &closed, &rollback)
	if noRows(err) {
		return k, fmt.Errorf("integration %q: %w", a.integration, ErrNotFound)
	}
	if err != nil {
		return k, fmt.Errorf("look up the event: %w", err)
	}
	if seq != nil {
		k.seq, k.receivedAt, k.closed = *seq, *at, closed != nil
	}
	if rollback != nil {
		k.rollback = *rollback
	}
	return k, nil
}

// storeEvent keeps the first delivery of an event. The unique id decides
// between two that arrive at once: the loser looks again (errRace).
func storeEvent(ctx context.Context, tx pgx.Tx, a arrival, r ruling, handOn bool, now time.Time) (int64, error) {
	state := eventStored
	if r.verdict == Quarantine && !handOn {
		state = eventQuarantined
	}
	var occurred *time.Time
	if at, err := ParseTimestamp(a.ref.OccurredAt); err == nil {
		occurred = &at
	}
	var seq int64
	err := tx.QueryRow(ctx, `
		insert into events (integration, account, event_id, kind, occurred_at, occurred_raw, received_at, fingerprint, payload, state)
		values (@integration, @account, @event_id, @kind, @occurred_at, @occurred_raw, @received_at, @fingerprint, @payload, @state)
		on conflict (integration, account, event_id) do update set kind = excluded.kind, occurred_at = excluded.occurred_at,
			occurred_raw = excluded.occurred_raw, fingerprint = excluded.fingerprint, payload = excluded.payload,
			state = case when events.closed_at is null then excluded.state else 'applied' end
		where events.fingerprint is null
		returning seq`,
		pgx.NamedArgs{
			"integration": a.integration, "account": a.ref.Account, "event_id": a.ref.ID, "kind": a.kind,
			"occurred_at": occurred, "occurred_raw": a.ref.OccurredAt, "received_at": now,
			"fingerprint": a.fingerprint[:], "payload": []byte(a.canonical), "state": state,
		}).Scan(&seq)
	if noRows(err) {
		return 0, errRace
	}
	if err != nil {
		return 0, fmt.Errorf("store the event: %w", err)
	}
	return seq, nil
}

func insertDelivery(ctx context.Context, tx pgx.Tx, a arrival, k known, r Receipt, now time.Time) (int64, error) {
	var seq *int64
	if r.EventSeq != 0 {
		seq = &r.EventSeq
	}
	hash := sha256.Sum256(a.raw)
	var id int64
	err := tx.QueryRow(ctx, `
		insert into deliveries (integration, event_seq, received_at, payload, payload_hash, mode, disposition, reason, handed_on)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning id`,
		a.integration, seq, now, a.raw, hash[:], k.integ.Mode, r.Disposition, r.Reason, r.HandOn).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("store the delivery: %w", err)
	}
	return id, nil
}

// recordDelivery adds the decision, the item, the counters and the audit
// record of a delivery.
func (g *Gate) recordDelivery(ctx context.Context, tx pgx.Tx, by Actor, a arrival, k known, rule ruling, enforced bool, r *Receipt, now time.Time) error {
	batch := &pgx.Batch{}
	g.count(batch, a.integration, now, countDelivery, 1)
	recorded := rule.verdict != Forward && (enforced || k.integ.Mode == ModeShadow)
	if recorded {
		recordDecision(batch, decisionRow{
			integration: a.integration, at: now, kind: "delivery", mode: k.integ.Mode, verdict: rule.verdict,
			reason: rule.reason, detail: rule.detail, enforced: enforced, account: a.ref.Account,
			eventID: a.ref.ID, agent: by.Name, deliveryID: r.ID,
		})
		g.count(batch, a.integration, now, counterOf(rule.verdict), 1)
		if rule.reason == ReasonReplay {
			g.count(batch, a.integration, now, countReplay, 1)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("count the delivery: %w", err)
	}
	if rule.verdict == Quarantine && enforced {
		item, err := g.holdDelivery(ctx, tx, by, a, k, rule, r.ID, now)
		if err != nil {
			return err
		}
		r.Item = item
	}
	return audit.Append(ctx, tx, entry(now, by, a.integration, "delivery."+deliveryAction(r.Disposition), "E-"+a.ref.ID, map[string]any{
		"delivery": r.ID, "reason": string(rule.reason), "detail": rule.detail, "handed_on": r.HandOn, "item": r.Item,
		"mode": string(k.integ.Mode),
	}))
}

func deliveryAction(d Disposition) string {
	if d == Quarantined {
		return "held"
	}
	return string(d)
}

// holdDelivery opens an item for a person, or finds the open one for the same
// event and payload.
func (g *Gate) holdDelivery(ctx context.Context, tx pgx.Tx, by Actor, a arrival, k known, rule ruling, delivery int64, now time.Time) (int64, error) {
	var item int64
	if k.seq != 0 { // else it is the first of its event, or of none that we know
		if err := lockHold(ctx, tx, DerivedKey("hold", a.integration, strconv.FormatInt(k.seq, 10))); err != nil {
			return 0, err
		}
	}
	err := tx.QueryRow(ctx, `
		select q.id from quarantine_items q join deliveries d on d.id = q.delivery_id
		where q.integration = $1 and q.state in ('open', 'releasing') and d.event_seq = $2 and q.fingerprint = $3 and q.reason = $4
		order by q.id limit 1`, a.integration, k.seq, a.fingerprint[:], rule.reason).Scan(&item)
	if err == nil || !noRows(err) {
		return item, err
	}
	return openItem(ctx, tx, newItem{
		by:          by,
		integration: a.integration, kind: "delivery", deliveryID: delivery, reason: rule.reason, detail: rule.detail,
		rollbackID: k.rollback, fingerprint: a.fingerprint[:], at: now,
	})
}

// CloseEvent closes an event for the run that claimed it: whatever another run
// sends for it afterwards is a replay. Closing it again, as after a lost
// answer, changes nothing. ErrStale when another run has the event,
// ErrMalformed without an event id and a run, ErrNotFound for an unknown
// integration.
func (g *Gate) CloseEvent(ctx context.Context, by Actor, integration string, ref EventRef, run string) error {
	if ref.ID == "" || run == "" {
		return fmt.Errorf("an event id and a run are needed to close an event: %w", ErrMalformed)
	}
	for _, v := range []string{ref.Account, ref.ID, ref.OccurredAt, run} {
		if len(v) > maxName || !cleanText(v) {
			return fmt.Errorf("a name is longer than %d bytes, holds a control character or is not UTF-8: %w", maxName, ErrMalformed)
		}
	}
	if _, err := g.Integration(ctx, integration); err != nil {
		return err
	}
	now := g.clock.Now()
	return g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		err := claimEvent(ctx, tx, Request{Integration: integration, Event: ref, Run: run}, now)
		if err != nil && !errors.Is(err, errRace) {
			return err
		}
		tag, err := tx.Exec(ctx, closeEventSQL, integration, ref.Account, ref.ID, now, run)
		if err != nil {
			return fmt.Errorf("close the event: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return whyNotClosed(ctx, tx, integration, ref, run)
		}
		return audit.Append(ctx, tx, entry(now, by, integration, "event.closed", "E-"+ref.ID, map[string]any{"run": run}))
	})
}

// whyNotClosed is nil when the run has closed its event before.
func whyNotClosed(ctx context.Context, tx pgx.Tx, integration string, ref EventRef, run string) error {
	var owner string
	err := tx.QueryRow(ctx, `select coalesce(run, '') from events where integration = $1 and account = $2 and event_id = $3`,
		integration, ref.Account, ref.ID).Scan(&owner)
	if err != nil {
		return fmt.Errorf("look who closed the event: %w", err)
	}
	if owner != run {
		return fmt.Errorf("the event belongs to another run: %w", ErrStale)
	}
	return nil
}

// Events returns stored events that are not applied yet, in order of arrival,
// for an agent that pulls.
func (g *Gate) Events(ctx context.Context, integration string, after int64, limit int) ([]InboxEvent, error) {
	rows, err := g.pool.Query(ctx, `
		select seq, account, event_id, occurred_raw, kind, received_at, payload from events
		where integration = $1 and state = 'stored' and seq > $2 order by seq limit $3`,
		integration, after, min(max(limit, 1), 500))
	if err != nil {
		return nil, storeError(fmt.Errorf("list the inbox: %w", err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (InboxEvent, error) {
		var e InboxEvent
		var payload []byte
		err := row.Scan(&e.Seq, &e.Event.Account, &e.Event.ID, &e.Event.OccurredAt, &e.Kind, &e.ReceivedAt, &payload)
		e.Payload = payload
		return e, err
	})
	if err != nil {
		return nil, storeError(fmt.Errorf("list the inbox: %w", err))
	}
	return list, nil
}

// noRows reports whether a query found nothing.
func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
