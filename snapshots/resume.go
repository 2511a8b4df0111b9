package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

// Resume lets a stopped rollback try its failed row again. Where that row was
// refused its entity is read first: a *MovedError says that it no longer is
// what was approved, so that only a skip or a new plan helps.
func (r *rollbacks) Resume(ctx context.Context, by gate.Actor, id, version int64) (Rollback, error) {
	rb, err := r.Rollback(ctx, id)
	if err != nil {
		return Rollback{}, err
	}
	moved, err := r.failedMoved(ctx, rb)
	if err != nil {
		return Rollback{}, fmt.Errorf("resume %s: %w", rollbackName(id), err)
	}
	if len(moved) > 0 {
		return rb, &MovedError{Rollback: id, Rows: moved}
	}
	return r.change(ctx, id, version, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		_, err := tx.Exec(ctx, `
			update rollback_rows set state = 'planned', detail = '', done_at = null
			where rollback_id = $1 and state = 'failed'`, id)
		if err != nil {
			return fmt.Errorf("resume %s: %w", rollbackName(id), err)
		}
		return r.goOn(ctx, tx, by, rb, map[string]any{"retry": true})
	})
}

// SkipFailed leaves the failed row of a stopped rollback undone, for the reason
// in the note, and goes on with the rest. What the row would have undone keeps
// its keys.
func (r *rollbacks) SkipFailed(ctx context.Context, by gate.Actor, id int64, row int, version int64, note string) (Rollback, error) {
	note = strings.TrimSpace(note)
	if note == "" || len(note) > maxNote {
		return Rollback{}, fmt.Errorf("a note of up to %d bytes says why the row is skipped: %w", maxNote, gate.ErrMalformed)
	}
	return r.change(ctx, id, version, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		tag, err := tx.Exec(ctx, `
			update rollback_rows set state = 'skipped', detail = $3, done_at = $4
			where rollback_id = $1 and row = $2 and state = 'failed'`, id, row, "skipped by "+by.Name+": "+note, r.clock.Now())
		if err != nil {
			return fmt.Errorf("skip row %d of %s: %w", row, rollbackName(id), err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s has no failed row %d: %w", rollbackName(id), row, gate.ErrStale)
		}
		return r.goOn(ctx, tx, by, rb, map[string]any{"skipped": row, "note": note})
	})
}

func (r *rollbacks) goOn(ctx context.Context, tx pgx.Tx, by gate.Actor, rb *Rollback, detail map[string]any) error {
	if err := r.move(ctx, tx, rb, evResume); err != nil {
		return err
	}
	if err := setError(ctx, tx, rb.ID, ""); err != nil {
		return err
	}
	if err := r.record(ctx, tx, by, *rb, "rollback.resumed", detail); err != nil {
		return err
	}
	return r.enqueue(ctx, tx, applyArgs{ID: rb.ID})
}

// failedMoved reads the entities of refused rows again.
func (r *rollbacks) failedMoved(ctx context.Context, rb Rollback) ([]Moved, error) {
	rows, err := sentRows(ctx, r.pool, rb.ID)
	if err != nil {
		return nil, err
	}
	target, err := r.gate.Target(rb.Integration)
	if err != nil {
		return nil, err
	}
	sent := map[entityKey][]Row{}
	var moved []Moved
	for _, w := range rows {
		k := entityKey{w.EntityType, w.EntityID}
		if w.State == RowApplied || w.State == RowVerified {
			sent[k] = append(sent[k], w)
		}
		if w.State != RowFailed {
			continue
		}
		refused, err := r.wasRefused(ctx, rb, w)
		if err != nil {
			return nil, err
		}
		e, err := target.Read(ctx, w.EntityType, w.EntityID)
		if err != nil && !errors.Is(err, gate.ErrNotFound) {
			return nil, fmt.Errorf("read %s %s: %w", w.EntityType, w.EntityID, err)
		}
		want, err := ownChanges(w.Live, sent[k])
		if err != nil {
			return nil, err
		}
		gone := w.Op == gate.OpDelete && e.State == nil
		if refused && !gone && !samePresence(e.State, want) {
			moved = append(moved, Moved{
				Row: w.Row, EntityType: w.EntityType, EntityID: w.EntityID, Subject: w.Subject,
				Was: want, Is: e.State, By: e.UpdatedBy, At: e.UpdatedAt,
			})
		}
	}
	return moved, nil
}

// wasRefused reports whether the row's last attempt definitely had no effect.
// One that a person settled as applied has had it, and is answered from its
// reservation.
func (r *rollbacks) wasRefused(ctx context.Context, rb Rollback, w Row) (bool, error) {
	if w.MutationID == 0 {
		return true, nil
	}
	found, err := r.gate.MutationsOf(ctx, rb.Integration, []int64{w.MutationID})
	if err != nil {
		return false, fmt.Errorf("read M-%d: %w", w.MutationID, err)
	}
	return len(found) == 1 && found[0].State == gate.StRefused, nil
}

// precondition is the version that a row's entity must have: the one that was
// approved. Where this rollback itself changed the entity since, or the row is
// tried again, the entity is read: when it is otherwise just what was approved,
// its present version counts. In any other case the approved version goes out
// and the target refuses it.
func (a *applier) precondition(ctx context.Context, w *Row) (*int64, error) {
	if w.Live == nil {
		return nil, nil // a create: there is nothing that could have moved
	}
	sent := a.sent[entityKey{w.EntityType, w.EntityID}]
	if w.MutationID == 0 && len(sent) == 0 {
		return &w.LiveVersion, nil
	}
	e, err := a.target.Read(ctx, w.EntityType, w.EntityID)
	if errors.Is(err, gate.ErrNotFound) {
		return &w.LiveVersion, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", w.EntityType, w.EntityID, err)
	}
	want, err := ownChanges(w.Live, sent)
	if err != nil {
		return nil, err
	}
	if samePresence(e.State, want) {
		return &e.Version, nil
	}
	return &w.LiveVersion, nil
}

// ownChanges is what rows that were sent made of a state.
func ownChanges(state json.RawMessage, sent []Row) (json.RawMessage, error) {
	for _, w := range sent {
		switch w.Op {
		case gate.OpDelete:
			state = nil
		case gate.OpCreate:
			state = w.Body
		default:
			merged, err := gate.Merge(state, w.Body)
			if err != nil {
				return nil, fmt.Errorf("row %d: %w", w.Row, err)
			}
			state = merged
		}
	}
	return state, nil
}
