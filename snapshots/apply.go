package snapshots

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

// RunApply sends an approved rollback row by row, or goes on with one that was
// interrupted at any point; it does nothing for any other. One applier works on
// an integration at a time. The order at each row is:
//
//  1. the row says "sending" (committed);
//  2. the gate reserves, sends and settles, or answers from its reservation;
//  3. in one transaction: the row says "applied", the keys of what it undoes
//     are closed, the audit record has a line.
//
// Whatever is lost in between, the row is found at 1 or 3, and asking the gate
// again never sends what may have been applied. An outcome that is not known
// yet leaves the row at 1, and a later round asks again. A refusal stops the
// rollback; a person decides.
func (r *rollbacks) RunApply(ctx context.Context, id int64) error {
	rb, err := r.Rollback(ctx, id)
	if err != nil {
		return err
	}
	return r.alone(ctx, lockApply, rb.Integration, func(ctx context.Context) error {
		a, err := r.takeUp(ctx, id)
		if err != nil || a == nil {
			return err
		}
		for i := range a.rows {
			next, err := a.row(ctx, &a.rows[i])
			if err != nil {
				return fmt.Errorf("apply %s row %d: %w", rollbackName(id), a.rows[i].Row, err)
			}
			if !next {
				return nil
			}
		}
		return a.finish(ctx)
	})
}

// applier works through the rows of one rollback.
type applier struct {
	*rollbacks
	rb     Rollback
	by     gate.Actor // the approver: what is sent is theirs
	target gate.Target
	rows   []Row
	closed map[int64]bool      // suspects whose keys are closed
	sent   map[entityKey][]Row // applied rows by entity
	done   int
}

// takeUp moves an approved rollback to applying and reads where it stands.
func (r *rollbacks) takeUp(ctx context.Context, id int64) (*applier, error) {
	err := r.tx(ctx, func(tx pgx.Tx) error {
		rb, err := lockRollback(ctx, tx, id, 0)
		if err != nil || rb.State != RollbackApproved {
			return err
		}
		return r.move(ctx, tx, &rb, evStart)
	})
	if err != nil {
		return nil, fmt.Errorf("take up %s: %w", rollbackName(id), err)
	}
	rb, err := r.Rollback(ctx, id)
	if err != nil || rb.State != RollbackApplying {
		return nil, err
	}
	target, err := r.gate.Target(rb.Integration)
	if err != nil {
		return nil, err
	}
	rows, err := sentRows(ctx, r.pool, id)
	if err != nil {
		return nil, err
	}
	a := &applier{
		rollbacks: r, rb: rb, by: gate.Person(rb.ApprovedBy), target: target, rows: rows,
		closed: map[int64]bool{}, sent: map[entityKey][]Row{},
	}
	for _, w := range rows {
		if w.State == RowApplied || w.State == RowVerified {
			a.note(w)
		}
	}
	return a, nil
}

// note remembers an applied row.
func (a *applier) note(w Row) {
	k := entityKey{w.EntityType, w.EntityID}
	a.sent[k] = append(a.sent[k], w)
	for _, id := range w.Undoes {
		a.closed[id] = true
	}
	a.done++
}

// row brings one row to its end. It returns false where the rollback cannot go
// on now: it stopped, or an outcome is not known yet.
func (a *applier) row(ctx context.Context, w *Row) (bool, error) {
	switch w.State {
	case RowApplied, RowVerified, RowSkipped:
		return true, nil
	case RowFailed:
		return false, fmt.Errorf("it failed, and %s goes on: the two are written together", rollbackName(a.rb.ID))
	case RowPlanned:
		if err := a.markSending(ctx, w); err != nil {
			return false, err
		}
	}
	ifVersion, err := a.precondition(ctx, w)
	if err != nil {
		return false, err
	}
	d, err := a.send(ctx, w, ifVersion)
	if err != nil {
		return false, err
	}
	return a.settle(ctx, w, d)
}

func (a *applier) markSending(ctx context.Context, w *Row) error {
	err := a.tx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update rollback_rows set state = 'sending' where rollback_id = $1 and row = $2 and state = 'planned'`,
			a.rb.ID, w.Row)
		return err
	})
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	w.State = RowSending
	a.touch(a.rb)
	return nil
}

// send hands the row to the gate. An uncertain outcome is looked up at once;
// where the look-up proves that the target has not applied it, as after a
// crash between reserving and sending, it is sent again. What cannot be asked
// of the gate for good is told as a refusal, so that a person sees it.
func (a *applier) send(ctx context.Context, w *Row, ifVersion *int64) (gate.Decision, error) {
	d, uncertain, err := a.sendOnce(ctx, w, ifVersion)
	if err != nil || !uncertain {
		return d, err
	}
	looked, err := a.gate.Recheck(ctx, d.MutationID)
	switch {
	case errors.Is(err, gate.ErrInFlight):
		return d, nil
	case err != nil:
		return d, err
	case looked.State == gate.StRefused:
		d, _, err = a.sendOnce(ctx, w, ifVersion)
		return d, err
	}
	d.State, d.Detail = looked.State, looked.Detail
	return d, nil
}

// sendOnce is one call of the gate; uncertain says that its outcome can be
// looked up.
func (a *applier) sendOnce(ctx context.Context, w *Row, ifVersion *int64) (d gate.Decision, uncertain bool, err error) {
	d, err = a.gate.Compensate(ctx, a.by, gate.Compensation{
		Integration: a.rb.Integration, RollbackID: a.rb.ID, Row: w.Row, PlanHash: a.rb.Hash,
		Mutation:  gate.Mutation{Op: w.Op, Type: w.EntityType, ID: w.EntityID, Subject: w.Subject, Body: w.Body},
		IfVersion: ifVersion,
	})
	switch {
	case err == nil || errors.Is(err, gate.ErrInFlight):
	case errors.Is(err, gate.ErrMalformed):
		return gate.Decision{State: gate.StRefused, Detail: err.Error()}, false, nil
	default:
		return d, false, err
	}
	return d, d.MutationID != 0 && (d.State == gate.InFlight || d.State == gate.Unknown || d.State == gate.Manual), nil
}

// settle turns what the gate knows into the row's state.
func (a *applier) settle(ctx context.Context, w *Row, d gate.Decision) (bool, error) {
	switch d.State {
	case gate.Committed:
		return true, a.applied(ctx, w, d.MutationID, "")
	case gate.InFlight, gate.Unknown:
		return false, a.wait(ctx, w, d)
	case gate.Manual:
		return false, a.stop(ctx, w, d.MutationID, fmt.Sprintf("the outcome of M-%d cannot be looked up: settle it by hand, then resume", d.MutationID))
	case gate.StRefused:
		if w.Op == gate.OpDelete {
			_, err := a.target.Read(ctx, w.EntityType, w.EntityID)
			if errors.Is(err, gate.ErrNotFound) {
				return true, a.applied(ctx, w, d.MutationID, "nothing to send: it was already gone")
			}
			if err != nil {
				return false, fmt.Errorf("read after a refusal: %w", err)
			}
		}
		return false, a.stop(ctx, w, d.MutationID, "refused: "+d.Detail)
	}
	return false, a.stop(ctx, w, d.MutationID, fmt.Sprintf("not sent (%s %s): %s", d.Verdict, d.Reason, d.Detail))
}

// applied closes the row and the keys of what it undid, in one transaction.
func (a *applier) applied(ctx context.Context, w *Row, mutation int64, detail string) error {
	now := a.clock.Now()
	done := *w
	done.State, done.MutationID, done.Detail, done.DoneAt = RowApplied, mutation, detail, now
	var undone []int64
	for _, id := range w.Undoes {
		if !a.closed[id] {
			undone = append(undone, id)
		}
	}
	err := a.tx(ctx, func(tx pgx.Tx) error {
		if err := a.writeRow(ctx, tx, done); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `update rollbacks set progress_step = $2, progress_done = $3, progress_total = $4 where id = $1`,
			a.rb.ID, stepSend, a.done+1, len(a.rows))
		if err != nil {
			return fmt.Errorf("count the row: %w", err)
		}
		if len(undone) > 0 {
			if err := a.gate.CloseKeys(ctx, tx, a.by, a.rb.ID, undone); err != nil {
				return err
			}
		}
		return a.recordRow(ctx, tx, done)
	})
	if err != nil {
		return err
	}
	*w = done
	a.note(done)
	a.touch(a.rb)
	return nil
}

// wait leaves the row at "sending" and says why nothing moves.
func (a *applier) wait(ctx context.Context, w *Row, d gate.Decision) error {
	a.log.Warn("outcome not known yet", "rollback", a.rb.ID, "row", w.Row, "mutation", d.MutationID, "state", d.State)
	waiting := *w
	waiting.MutationID = d.MutationID
	waiting.Detail = fmt.Sprintf("the outcome of M-%d is not known yet; it is being looked up", d.MutationID)
	err := a.tx(ctx, func(tx pgx.Tx) error { return a.writeRow(ctx, tx, waiting) })
	a.touch(a.rb)
	return err
}

// stop marks the row as failed and waits for a person.
func (a *applier) stop(ctx context.Context, w *Row, mutation int64, why string) error {
	failed := *w
	failed.State, failed.Detail, failed.DoneAt = RowFailed, why, a.clock.Now()
	if mutation != 0 {
		failed.MutationID = mutation
	}
	err := a.tx(ctx, func(tx pgx.Tx) error {
		rb, err := lockRollback(ctx, tx, a.rb.ID, 0)
		if err != nil {
			return err
		}
		if err := a.writeRow(ctx, tx, failed); err != nil {
			return err
		}
		if err := a.move(ctx, tx, &rb, evStop); err != nil {
			return err
		}
		text := fmt.Sprintf("stopped at row %d, %s %s %s: %s", w.Row, w.Op, w.EntityType, w.EntityID, why)
		if err := setError(ctx, tx, rb.ID, text); err != nil {
			return err
		}
		return a.record(ctx, tx, a.by, rb, "rollback.stopped", rowDetail(failed))
	})
	a.touch(a.rb)
	return err
}

// writeRow stores what became of a row that was being sent. Another applier,
// which has the lock since this one lost it, may have been first.
func (a *applier) writeRow(ctx context.Context, tx pgx.Tx, w Row) error {
	tag, err := tx.Exec(ctx, `
		update rollback_rows set state = $3, mutation_id = nullif($4::bigint, 0), detail = $5, done_at = $6
		where rollback_id = $1 and row = $2 and state = 'sending'`,
		a.rb.ID, w.Row, w.State, w.MutationID, w.Detail, optionalTime(w.DoneAt))
	if err != nil {
		return fmt.Errorf("write row %d: %w", w.Row, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("row %d was written by another applier: %w", w.Row, gate.ErrStale)
	}
	return nil
}

func (a *applier) recordRow(ctx context.Context, tx pgx.Tx, w Row) error {
	return a.record(ctx, tx, a.by, a.rb, "rollback.row", rowDetail(w))
}

func rowDetail(w Row) map[string]any {
	return map[string]any{
		"row": w.Row, "op": w.Op, "entity": w.EntityType + "/" + w.EntityID,
		"state": w.State, "mutation": w.MutationID, "undoes": w.Undoes, "detail": w.Detail,
	}
}
