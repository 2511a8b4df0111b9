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
}

// settlementOf turns a target's answer to a send into a settlement.
func settlementOf(o Outcome) settlement {
	s := settlement{ref: o.Ref, detail: o.Detail, entity: o.Entity}
	switch o.Class {
	case Applied:
		s.event = EvApplied
	case Refused:
		s.event = EvRefused
	default:
		s.event = EvUncertain
	}
	return s
}

// settlementOfLookUp turns a look-up into a settlement; ok is false when the
// look-up taught nothing and the row stays as it is.
func settlementOfLookUp(l LookUp, state State) (s settlement, ok bool) {
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
		return s, state == InFlight
	}
	return s, state != Manual || s.event == EvFound
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
		if !ours {
			return g.whereItStands(ctx, tx, p.key, &got)
		}
		if next == Committed {
			if err := g.project(ctx, tx, p, s, now); err != nil {
				return err
			}
		}
		if next == Committed && p.state == Manual { // the scan for hash pairs has passed it
			if err := rewindPairs(ctx, tx, p.integration, p.mutationID); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, entry(now, p.by, p.integration, "mutation."+string(next), mutationName(p.mutationID), map[string]any{
			"key": p.key.String(), "external_ref": s.ref, "detail": s.detail, "fence": p.fence, "by": string(s.event),
		}))
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

// project applies a committed mutation to our record of the entity.
func (g *Gate) project(ctx context.Context, tx pgx.Tx, p pending, s settlement, now time.Time) error {
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
	switch {
	case m.Op == OpDelete:
		next.Deleted = true
		if !known {
			next.State = []byte("{}")
		}
	case m.Op == OpCreate || (!known && s.entity == nil):
		next.State, next.Deleted = m.Body, false
	case !known:
		next.State = s.entity.State
	default:
		if next.State, err = Merge(current.State, m.Body); err != nil {
			return fmt.Errorf("project M-%d: %w", p.mutationID, err)
		}
	}
	if s.entity != nil {
		next.TargetVersion = max(current.TargetVersion, s.entity.Version)
	}
	_, err = tx.Exec(ctx, `
		insert into entities (integration, type, id, version, target_version, state, deleted, subject, last_mutation, updated_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		on conflict (integration, type, id) do update set version = excluded.version, target_version = excluded.target_version,
			state = excluded.state, deleted = excluded.deleted, subject = excluded.subject,
			last_mutation = greatest(entities.last_mutation, excluded.last_mutation), updated_at = excluded.updated_at`,
		p.integration, m.Type, id, current.Version+1, next.TargetVersion, []byte(next.State), next.Deleted, m.Subject, p.mutationID, now)
	if err != nil {
		return fmt.Errorf("project M-%d: %w", p.mutationID, err)
	}
	return nil
}

// lockEntity reads an entity of the projection for change.
func lockEntity(ctx context.Context, tx pgx.Tx, integration, typ, id string) (Projected, bool, error) {
	p := Projected{Integration: integration, Type: typ, ID: id}
	var state []byte
	err := tx.QueryRow(ctx, `
		select version, target_version, state, deleted from entities
		where integration = $1 and type = $2 and id = $3 for update`, integration, typ, id).
		Scan(&p.Version, &p.TargetVersion, &state, &p.Deleted)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("lock %s/%s: %w", typ, id, err)
	}
	p.State = state
	return p, true, nil
}
