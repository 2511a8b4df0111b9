package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// settlement is what a send or a look-up taught us about a reservation.
type settlement struct {
	event  StateEvent
	ref    string
	detail string
	entity *Entity
}

// settled is where a reservation stands after a settlement.
type settled struct {
	state State
	ref   string
	ours  bool // this settlement did it, not another worker's
}

// settlementOf turns a target's answer to a send into a settlement.
func settlementOf(o Outcome, p pending) settlement {
	s := settlement{ref: o.Ref, detail: o.Detail, entity: o.Entity}
	switch o.Class {
	case Applied:
		s.event = EvApplied
	case Refused:
		s.event = EvRefused
	default:
		s.event = EvUncertain
	}
	return s.usable(p)
}

// usable takes an answer that names its result by nothing, or by what no row
// can hold, for no answer: a person has to say what it is. Else the row could
// not be settled, ever.
func (s settlement) usable(p pending) settlement {
	if len(s.ref) > maxName || !cleanText(s.ref) {
		s.ref, s.entity = "", nil
	}
	if s.ref != "" || p.mutation.ID != "" {
		return s
	}
	switch s.event {
	case EvApplied:
		s.event, s.detail = EvUncertain, "applied, but the target names no result that can be kept: "+s.detail
	case EvFound:
		s.event, s.detail = EvNoLookUp, "found, but the target names no result that can be kept: "+s.detail
	}
	return s
}

// settlementOfLookUp turns a look-up into a settlement; ok is false when the
// look-up taught nothing and the row stays as it is.
func settlementOfLookUp(l LookUp, p pending) (s settlement, ok bool) {
	s = settlement{ref: l.Ref, detail: l.Detail, entity: l.Entity}
	switch l.Class {
	case Found:
		s.event = EvFound
	case Absent:
		s.event = EvAbsent
	case Forgotten:
		s.event = EvNoLookUp
	default:
		s.event = EvNoLookUp
		return s, p.state == InFlight
	}
	s = s.usable(p)
	return s, p.state != Manual || s.event == EvFound
}

// settle records an outcome in one transaction: the reservation by compare and
// set on its fence, the projection, the counters and the audit record. A
// worker whose row was taken over changes nothing and learns where it stands.
func (g *Gate) settle(ctx context.Context, p pending, s settlement) (settled, error) {
	now := g.clock.Now()
	next, err := p.state.Next(s.event)
	if err != nil {
		return settled{}, err
	}
	got := settled{state: next, ref: s.ref}
	err = g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ours, err := closeReservation(ctx, tx, p, next, s, now)
		if err != nil {
			return err
		}
		if got.ours = ours; !ours {
			return g.whereItStands(ctx, tx, p.key, &got)
		}
		batch := &pgx.Batch{}
		if next == Committed {
			if err := g.project(ctx, tx, batch, p, s, now); err != nil {
				return err
			}
		}
		if next == Committed && p.state == Manual { // the scan for hash pairs has passed it
			if err := rewindPairs(ctx, tx, p.integration, p.mutationID); err != nil {
				return err
			}
		}
		err = audit.Queue(batch, entry(now, p.by, p.integration, "mutation."+string(next), mutationName(p.mutationID), map[string]any{
			"key": p.key.String(), "external_ref": s.ref, "detail": s.detail, "fence": p.fence, "by": string(s.event),
		}))
		if err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return settled{}, fmt.Errorf("settle M-%d: %w", p.mutationID, err)
	}
	g.Touch(p.integration, "in_flight")
	return got, nil
}

// closeReservation moves the row, unless its fence or state moved before.
func closeReservation(ctx context.Context, tx pgx.Tx, p pending, next State, s settlement, now time.Time) (bool, error) {
	var at *time.Time
	var by *string
	if next == Committed || next == StRefused {
		at, by = &now, &p.by.Name
	}
	tag, err := tx.Exec(ctx, `
		update reservations set state = $4, settled_at = $5, settled_by = $6, external_ref = $7, detail = $8, version = version + 1
		where key = $1 and fence = $2 and state = $3`,
		p.key[:], p.fence, p.state, next, at, by, truncate(s.ref), truncate(s.detail))
	if err != nil {
		return false, fmt.Errorf("close the reservation: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

func (g *Gate) whereItStands(ctx context.Context, tx pgx.Tx, key Key, got *settled) error {
	err := tx.QueryRow(ctx, `select state, external_ref from reservations where key = $1`, key[:]).Scan(&got.state, &got.ref)
	if err != nil {
		return fmt.Errorf("read a reservation that another worker took over: %w", err)
	}
	return nil
}

// truncate keeps a target's words to what a row and a page can hold.
func truncate(s string) string {
	clean := make([]rune, 0, len(s))
	for _, r := range s {
		if r == 0 || r == '\uFFFD' {
			continue
		}
		if len(clean) == 500 {
			return string(clean) + "…"
		}
		clean = append(clean, r)
	}
	return string(clean)
}

// project applies a committed mutation to our record of the entity: it locks
// the entity and adds its new state to the batch.
func (g *Gate) project(ctx context.Context, tx pgx.Tx, batch *pgx.Batch, p pending, s settlement, now time.Time) error {
	m := p.mutation
	id := m.ID
	if id == "" {
		id = s.ref
	}
	if id == "" {
		return fmt.Errorf("the target confirmed M-%d without an id for it", p.mutationID)
	}
	current, known, err := lockEntity(ctx, tx, p.integration, m.Type, id)
	if err != nil {
		return err
	}
	next := current
	if !known && m.Op == OpUpdate && s.entity != nil {
		next.State = s.entity.State
	} else if err := next.take(m); err != nil {
		return fmt.Errorf("project M-%d: %w", p.mutationID, err)
	}
	if current.LastMutation > p.mutationID {
		if err := retake(ctx, tx, &next, p.mutationID); err != nil {
			return fmt.Errorf("project M-%d: %w", p.mutationID, err)
		}
	}
	if s.entity != nil {
		next.TargetVersion = max(current.TargetVersion, s.entity.Version)
	}
	batch.Queue(`
		insert into entities (integration, type, id, version, target_version, state, deleted, subject, last_mutation, updated_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		on conflict (integration, type, id) do update set version = excluded.version, target_version = excluded.target_version,
			state = excluded.state, deleted = excluded.deleted, subject = excluded.subject,
			last_mutation = greatest(entities.last_mutation, excluded.last_mutation), updated_at = excluded.updated_at`,
		p.integration, m.Type, id, current.Version+1, next.TargetVersion, []byte(next.State), next.Deleted, m.Subject, p.mutationID, now)
	return nil
}

// take applies a mutation that the target has confirmed. What it confirms an
// update of exists, also where we took it for deleted.
func (p *Projected) take(m Mutation) (err error) {
	switch m.Op {
	case OpDelete:
		p.Deleted = true
		if p.State == nil {
			p.State = []byte("{}")
		}
	case OpCreate:
		p.State, p.Deleted = m.Body, false
	default:
		p.Deleted = false
		p.State, err = Merge(p.State, m.Body)
	}
	return err
}

// retake applies again what was committed after a mutation that is settled
// late, so that our record ends as if they had come in the order of their
// numbers, which is the order that a replay of the mutations has.
func retake(ctx context.Context, tx pgx.Tx, p *Projected, after int64) error {
	later, err := collect(ctx, tx, "read the later mutations", func(row pgx.CollectableRow) (m Mutation, err error) {
		var body []byte
		err = row.Scan(&m.Op, &body)
		m.Body = body
		return m, err
	}, `
		select m.op, m.body from mutations m join reservations r on r.mutation_id = m.id
		where m.integration = $1 and m.entity_type = $2 and m.entity_id = $3 and m.id > $4 and r.state = 'committed'
		order by m.id`, p.Integration, p.Type, p.ID, after)
	if err != nil {
		return err
	}
	for _, m := range later {
		if err := p.take(m); err != nil {
			return err
		}
	}
	return nil
}

// lockEntity reads an entity of the projection for change. One that is not
// there yet is locked by its name, so that of two first changes the second
// sees the first.
func lockEntity(ctx context.Context, tx pgx.Tx, integration, typ, id string) (Projected, bool, error) {
	p, known, err := readForChange(ctx, tx, integration, typ, id)
	if known || err != nil {
		return p, known, err
	}
	_, err = tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 1))`, integration+"\x1f"+typ+"\x1f"+id)
	if err != nil {
		return p, false, fmt.Errorf("lock the name %s/%s: %w", typ, id, err)
	}
	return readForChange(ctx, tx, integration, typ, id)
}

func readForChange(ctx context.Context, tx pgx.Tx, integration, typ, id string) (Projected, bool, error) {
	p := Projected{Integration: integration, Type: typ, ID: id}
	var state []byte
	err := tx.QueryRow(ctx, `
		select version, target_version, state, deleted, coalesce(last_mutation, 0) from entities
		where integration = $1 and type = $2 and id = $3 for update`, integration, typ, id).
		Scan(&p.Version, &p.TargetVersion, &state, &p.Deleted, &p.LastMutation)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("lock %s/%s: %w", typ, id, err)
	}
	p.State = state
	return p, true, nil
}
