package snapshots

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

const (
	maxSuspects = 100_000
	maxNote     = 2000 // bytes
)

// CreatePlan asks for a dry run: it records the request and hands it to the
// planner. What is asked to be undone has to be committed in that integration:
// gate.ErrNotFound, or gate.ErrStale when something of it is undone already.
func (r *rollbacks) CreatePlan(ctx context.Context, by gate.Actor, req PlanRequest) (Rollback, error) {
	suspects, err := r.checkPlan(ctx, req)
	if err != nil {
		return Rollback{}, fmt.Errorf("plan a rollback: %w", err)
	}
	var id int64
	err = r.tx(ctx, func(tx pgx.Tx) error {
		id, err = r.insertPlan(ctx, tx, by, req, suspects)
		return err
	})
	if err != nil {
		return Rollback{}, fmt.Errorf("plan a rollback: %w", err)
	}
	return r.Rollback(ctx, id)
}

// checkPlan returns the suspects once each, by mutation.
func (r *rollbacks) checkPlan(ctx context.Context, req PlanRequest) ([]Suspect, error) {
	switch {
	case len(req.Mutations) == 0:
		return nil, fmt.Errorf("choose at least one mutation to undo: %w", gate.ErrMalformed)
	case len(req.Mutations) > maxSuspects:
		return nil, fmt.Errorf("choose at most %d mutations: %w", maxSuspects, gate.ErrMalformed)
	case len(req.Note) > maxNote:
		return nil, fmt.Errorf("a note has at most %d bytes: %w", maxNote, gate.ErrMalformed)
	}
	if _, err := r.worlds.Get(ctx, req.Integration, req.SnapshotSeq); err != nil {
		return nil, err
	}
	suspects := slices.Clone(req.Mutations)
	slices.SortStableFunc(suspects, func(a, b Suspect) int { return cmp.Compare(a.Mutation.ID, b.Mutation.ID) })
	suspects = slices.CompactFunc(suspects, func(a, b Suspect) bool { return a.Mutation.ID == b.Mutation.ID })
	for i := range suspects {
		s := &suspects[i]
		s.Source = cmp.Or(s.Source, sourceSelection)
		if !slices.Contains([]string{sourcePair, sourceRange, sourceRun, sourceSelection}, s.Source) {
			return nil, fmt.Errorf("%q is no source of suspects: %w", s.Source, gate.ErrMalformed)
		}
	}
	suspects, err := r.withRecords(ctx, req.Integration, suspects)
	if err != nil {
		return nil, err
	}
	return suspects, stillCommitted(suspects)
}

// stillCommitted is gate.ErrStale when a suspect is no longer, or never was,
// in effect.
func stillCommitted(suspects []Suspect) error {
	for _, s := range suspects {
		if s.Mutation.State != gate.Committed {
			return fmt.Errorf("mutation M-%d is not in effect (%s): %w", s.Mutation.ID, cmp.Or(s.Mutation.State, "never sent"), gate.ErrStale)
		}
	}
	return nil
}

func (r *rollbacks) insertPlan(ctx context.Context, tx pgx.Tx, by gate.Actor, req PlanRequest, suspects []Suspect) (int64, error) {
	rb := Rollback{Integration: req.Integration}
	err := tx.QueryRow(ctx, `
		insert into rollbacks (integration, snapshot_seq, state, created_at, created_by, note)
		values ($1, $2, 'planning', $3, $4, $5) returning id`,
		req.Integration, req.SnapshotSeq, r.clock.Now(), by.Name, req.Note).Scan(&rb.ID)
	if err != nil {
		return 0, fmt.Errorf("insert rollback: %w", err)
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"rollback_suspects"}, []string{"rollback_id", "mutation_id", "pair_id", "source"},
		pgx.CopyFromSlice(len(suspects), func(i int) ([]any, error) {
			var pair *int64
			if suspects[i].PairID != 0 {
				pair = &suspects[i].PairID
			}
			return []any{rb.ID, suspects[i].Mutation.ID, pair, suspects[i].Source}, nil
		}))
	if err != nil {
		return 0, fmt.Errorf("insert suspects: %w", err)
	}
	err = r.record(ctx, tx, by, rb, "rollback.requested", map[string]any{
		"snapshot": req.SnapshotSeq, "suspects": len(suspects), "note": req.Note,
	})
	if err != nil {
		return 0, err
	}
	return rb.ID, r.enqueue(ctx, tx, planArgs{ID: rb.ID})
}

// Replan makes a new plan from the inputs of an old one, as far as they are
// still in effect. A plan that was waiting for approval is withdrawn: of two
// plans for the same suspects only the fresh one can be approved.
func (r *rollbacks) Replan(ctx context.Context, by gate.Actor, id int64) (Rollback, error) {
	old, err := r.Rollback(ctx, id)
	if err != nil {
		return Rollback{}, err
	}
	marks, err := suspectMarks(ctx, r.pool, id, 0, 0)
	if err != nil {
		return Rollback{}, err
	}
	suspects, err := r.withRecords(ctx, old.Integration, marks)
	if err != nil {
		return Rollback{}, err
	}
	suspects = slices.DeleteFunc(suspects, func(s Suspect) bool { return s.Mutation.State != gate.Committed })
	if len(suspects) == 0 {
		return Rollback{}, fmt.Errorf("nothing of %s is left to undo: %w", rollbackName(id), gate.ErrStale)
	}
	req := PlanRequest{Integration: old.Integration, SnapshotSeq: old.SnapshotSeq, Note: old.Note}
	var fresh int64
	err = r.tx(ctx, func(tx pgx.Tx) error {
		old, err := lockRollback(ctx, tx, id, 0)
		if err != nil {
			return err
		}
		switch old.State {
		case RollbackPlanning, RollbackApproved, RollbackApplying:
			return fmt.Errorf("%s is %s: %w", rollbackName(id), old.State, gate.ErrStale)
		case RollbackReady:
			if err := r.cancel(ctx, tx, by, &old, "planned again"); err != nil {
				return err
			}
		}
		fresh, err = r.insertPlan(ctx, tx, by, req, suspects)
		return err
	})
	if err != nil {
		return Rollback{}, fmt.Errorf("plan %s again: %w", rollbackName(id), err)
	}
	r.touch(old)
	return r.Rollback(ctx, fresh)
}

// Cancel withdraws a rollback that is not being applied: one that is planned,
// waits, or has stopped. What a stopped one has already sent stays sent.
func (r *rollbacks) Cancel(ctx context.Context, by gate.Actor, id, version int64) (Rollback, error) {
	return r.change(ctx, id, version, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		return r.cancel(ctx, tx, by, rb, "withdrawn")
	})
}

func (r *rollbacks) cancel(ctx context.Context, tx pgx.Tx, by gate.Actor, rb *Rollback, why string) error {
	was := rb.State
	if err := r.move(ctx, tx, rb, evCancel); err != nil {
		return err
	}
	if err := setError(ctx, tx, rb.ID, fmt.Sprintf("%s by %s at %s", why, by.Name, r.clock.Now().Format(time.RFC3339))); err != nil {
		return err
	}
	return r.record(ctx, tx, by, *rb, "rollback.cancelled", map[string]any{"was": was, "why": why})
}

// change runs one command on a locked rollback and returns what became of it.
func (r *rollbacks) change(ctx context.Context, id, version int64, f func(context.Context, pgx.Tx, *Rollback) error) (Rollback, error) {
	err := r.tx(ctx, func(tx pgx.Tx) error {
		rb, err := lockRollback(ctx, tx, id, version)
		if err != nil {
			return err
		}
		return f(ctx, tx, &rb)
	})
	if err != nil {
		return Rollback{}, err
	}
	rb, err := r.Rollback(ctx, id)
	if err == nil {
		r.touch(rb)
	}
	return rb, err
}

// setError says on the rollback's page why it does not go on.
func setError(ctx context.Context, tx pgx.Tx, id int64, why string) error {
	if _, err := tx.Exec(ctx, `update rollbacks set error = $2 where id = $1`, id, strings.ToValidUTF8(why, "\ufffd")); err != nil {
		return fmt.Errorf("write why %s does not go on: %w", rollbackName(id), err)
	}
	return nil
}
