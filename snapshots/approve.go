package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

// Approve binds a person to exactly the plan that they saw, by version and
// hash, and hands it to the applier in the same transaction. A plan is
// approved once. Refused:
//
//   - *gate.DecidedError: somebody approved it before; who and when.
//   - *MovedError: rows have moved at the target since the dry run; it names
//     them, and the plan is withdrawn, because it can never be sent as it is.
//   - gate.ErrStale: it expired, was withdrawn, or is not what was seen.
func (r *rollbacks) Approve(ctx context.Context, by gate.Actor, id, version int64, hash [32]byte) (Rollback, error) {
	rb, err := r.Rollback(ctx, id)
	if err != nil {
		return Rollback{}, err
	}
	if err := approvable(rb, version, hash); err != nil {
		return rb, r.refused(ctx, by, rb, err)
	}
	if !r.clock.Now().Before(rb.ExpiresAt) {
		return rb, r.refused(ctx, by, rb, r.expire(ctx, id, rb.Version))
	}
	moved, err := r.moved(ctx, rb)
	if err != nil {
		return rb, fmt.Errorf("approve %s: %w", rollbackName(id), err)
	}
	if len(moved) > 0 {
		return rb, r.withdrawMoved(ctx, by, rb, moved)
	}
	approved, err := r.change(ctx, id, 0, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		return r.approve(ctx, tx, by, rb, version, hash)
	})
	if errors.Is(err, gate.ErrStale) {
		return rb, r.refused(ctx, by, rb, err)
	}
	return approved, err
}

// approve is the compare-and-set: of two people at once one wins.
func (r *rollbacks) approve(ctx context.Context, tx pgx.Tx, by gate.Actor, rb *Rollback, version int64, hash [32]byte) error {
	if err := approvable(*rb, version, hash); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		update rollbacks set approved_at = $2, approved_by = $3, approved_hash = hash,
		       progress_step = $4, progress_done = 0, progress_total = $5
		where id = $1 and hash = $6`,
		rb.ID, r.clock.Now(), by.Name, stepSend, rb.Summary.Compensations, hash[:])
	if err != nil {
		return fmt.Errorf("approve %s: %w", rollbackName(rb.ID), err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("%s is not the plan that was seen: %w", rollbackName(rb.ID), gate.ErrStale)
	}
	if err := r.move(ctx, tx, rb, evApprove); err != nil {
		return err
	}
	err = r.record(ctx, tx, by, *rb, "rollback.approved", map[string]any{
		"hash": fmt.Sprintf("%x", hash), "compensations": rb.Summary.Compensations, "by_op": rb.Summary.ByOp,
	})
	if err != nil {
		return err
	}
	return r.enqueue(ctx, tx, applyArgs{ID: rb.ID})
}

// approvable says why a plan cannot be approved as it was seen.
func approvable(rb Rollback, version int64, hash [32]byte) error {
	switch {
	case !rb.ApprovedAt.IsZero():
		return &gate.DecidedError{What: rollbackName(rb.ID), State: string(rb.State), By: rb.ApprovedBy, At: rb.ApprovedAt}
	case rb.State != RollbackReady:
		return fmt.Errorf("%s is %s, not ready: %w", rollbackName(rb.ID), rb.State, gate.ErrStale)
	case rb.Version != version:
		return fmt.Errorf("%s is at version %d, not %d: %w", rollbackName(rb.ID), rb.Version, version, gate.ErrStale)
	case rb.Hash != hash:
		return fmt.Errorf("%s is not the plan that was seen: %w", rollbackName(rb.ID), gate.ErrStale)
	}
	return nil
}

// refused puts a refusal on the audit record and returns its cause.
func (r *rollbacks) refused(ctx context.Context, by gate.Actor, rb Rollback, cause error) error {
	err := r.tx(ctx, func(tx pgx.Tx) error {
		return r.record(ctx, tx, by, rb, "rollback.refused", map[string]any{"why": cause.Error()})
	})
	return errors.Join(cause, err)
}

// expire closes a plan that nobody approved in time, and says so.
func (r *rollbacks) expire(ctx context.Context, id, version int64) error {
	rb, err := r.change(ctx, id, version, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		if err := r.move(ctx, tx, rb, evExpire); err != nil {
			return err
		}
		return r.record(ctx, tx, gate.Job("rollback-rounds"), *rb, "rollback.expired", nil)
	})
	if err != nil {
		return err
	}
	return fmt.Errorf("%s expired at %s; plan again: %w", rollbackName(id), rb.ExpiresAt.Format(time.RFC3339), gate.ErrStale)
}

func (r *rollbacks) withdrawMoved(ctx context.Context, by gate.Actor, rb Rollback, moved []Moved) error {
	refusal := &MovedError{Rollback: rb.ID, Rows: moved}
	names := make([]string, 0, min(len(moved), 20))
	for _, m := range moved[:cap(names)] {
		names = append(names, m.EntityType+" "+m.EntityID)
	}
	_, err := r.change(ctx, rb.ID, rb.Version, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		if err := r.move(ctx, tx, rb, evMoved); err != nil {
			return err
		}
		if err := setError(ctx, tx, rb.ID, refusal.Error()); err != nil {
			return err
		}
		return r.record(ctx, tx, by, *rb, "rollback.refused", map[string]any{"moved": len(moved), "first": names})
	})
	if errors.Is(err, gate.ErrStale) { // somebody else got ahead: that is what the person has to know
		now, errNow := r.Rollback(ctx, rb.ID)
		if errNow == nil && !now.ApprovedAt.IsZero() {
			return approvable(now, now.Version, now.Hash)
		}
	}
	if err != nil && !errors.Is(err, gate.ErrStale) {
		return errors.Join(refusal, err)
	}
	return refusal
}

// moved reads the live state once, outside any transaction, and compares every
// row that approval would send with what the dry run saw.
func (r *rollbacks) moved(ctx context.Context, rb Rollback) ([]Moved, error) {
	rows, err := sentRows(ctx, r.pool, rb.ID)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	live, err := r.liveOf(ctx, rb.Integration, rows)
	if err != nil {
		return nil, err
	}
	var moved []Moved
	for _, w := range rows {
		e, there := live[entityKey{w.EntityType, w.EntityID}]
		if there == (w.Live != nil) && (!there || e.Version == w.LiveVersion) {
			continue
		}
		moved = append(moved, Moved{
			Row: w.Row, EntityType: w.EntityType, EntityID: w.EntityID, Subject: w.Subject,
			Was: w.Live, Is: e.State, By: e.UpdatedBy, At: e.UpdatedAt,
		})
	}
	return moved, nil
}

// liveOf reads the entities of rows in one pass over the live state.
func (r *rollbacks) liveOf(ctx context.Context, integration string, rows []Row) (map[entityKey]gate.Entity, error) {
	target, err := r.gate.Target(integration)
	if err != nil {
		return nil, err
	}
	wanted := make(map[entityKey]bool, len(rows))
	for _, w := range rows {
		wanted[entityKey{w.EntityType, w.EntityID}] = true
	}
	found := make(map[entityKey]gate.Entity, len(rows))
	err = eachLive(ctx, target, func(page []gate.Entity) error {
		for _, e := range page {
			if k := (entityKey{e.Type, e.ID}); wanted[k] {
				found[k] = e
			}
		}
		return nil
	})
	return found, err
}
