package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

// The steps of a rollback, as its progress names them.
const (
	stepReplay   = "replay"
	stepLive     = "live"
	stepDiff     = "diff"
	stepSend     = "send"
	stepReadBack = "readback"
)

const (
	livePage     = 1000 // entities of the live state read at once
	settleRounds = 5    // how often a plan looks for mutations that came meanwhile
)

// plannerJob is who the audit record names for a dry run.
var plannerJob = gate.Job("rollback-planner")

// RunPlan does the dry run of a rollback that is in planning, and nothing for
// any other or one that another process is working on. It may be called again
// at any time: rows are written in the transaction that makes the plan ready.
// What a person has to know (the target cannot be read, the snapshot is
// broken) fails the plan; an error is returned only where trying again may help.
func (r *rollbacks) RunPlan(ctx context.Context, id int64) error {
	return r.alone(ctx, lockPlan, rollbackName(id), func(ctx context.Context) error {
		rb, err := r.Rollback(ctx, id)
		if err != nil {
			return err
		}
		if rb.State != RollbackPlanning {
			return nil
		}
		p, manifest, suspects, err := r.dryRun(ctx, rb)
		switch {
		case ctx.Err() != nil || errors.Is(err, gate.ErrUnavailable):
			return fmt.Errorf("plan %s: %w", rollbackName(id), errors.Join(ctx.Err(), err))
		case err != nil:
			return r.planFailed(ctx, id, err)
		}
		return r.planReady(ctx, id, p, planHash(rb.Integration, manifest, suspects, p.Rows))
	})
}

func (r *rollbacks) planFailed(ctx context.Context, id int64, cause error) error {
	r.log.Error("dry run failed", "rollback", id, "err", cause)
	_, err := r.change(ctx, id, 0, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		if err := r.move(ctx, tx, rb, evPlanFailed); err != nil {
			return err
		}
		if err := setError(ctx, tx, id, cause.Error()); err != nil {
			return err
		}
		return r.record(ctx, tx, plannerJob, *rb, "rollback.planned", map[string]any{"failed": cause.Error()})
	})
	return err
}

func (r *rollbacks) planReady(ctx context.Context, id int64, p plan, hash [32]byte) error {
	summary, err := json.Marshal(p.Summary)
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	_, err = r.change(ctx, id, 0, func(ctx context.Context, tx pgx.Tx, rb *Rollback) error {
		now := r.clock.Now()
		_, err := tx.Exec(ctx, `
			update rollbacks set hash = $2, summary = $3, planned_at = $4, expires_at = $5,
			       progress_step = $6, progress_done = $7, progress_total = $7
			where id = $1`, id, hash[:], summary, now, now.Add(r.planTTL), stepDiff, len(p.Rows))
		if err != nil {
			return fmt.Errorf("store plan: %w", err)
		}
		if err := r.move(ctx, tx, rb, evPlanned); err != nil {
			return err
		}
		if err := insertRows(ctx, tx, id, p.Rows); err != nil {
			return err
		}
		return r.record(ctx, tx, plannerJob, *rb, "rollback.planned", map[string]any{
			"hash": fmt.Sprintf("%x", hash), "compensations": p.Summary.Compensations, "decisions": p.Summary.Decisions,
			"outside": p.Summary.Outside, "residue": p.Summary.Residue,
		})
	})
	return err
}

// dryRun reads snapshot, history and live state, and compares them.
func (r *rollbacks) dryRun(ctx context.Context, rb Rollback) (p plan, manifest [32]byte, suspects []Suspect, err error) {
	in, snap, suspects, err := r.planInput(ctx, rb)
	if err != nil {
		return p, manifest, nil, err
	}
	target, err := r.gate.Target(rb.Integration)
	if err != nil {
		return p, manifest, nil, err
	}
	pl := newPlanner(in)
	total := in.World.size()
	err = eachLive(ctx, target, func(page []gate.Entity) error {
		for _, e := range page {
			if err := pl.see(e); err != nil {
				return err
			}
		}
		r.progress(ctx, rb, stepLive, len(pl.seen), max(total, len(pl.seen)))
		return nil
	})
	if err != nil {
		return p, manifest, nil, err
	}
	if err := r.catchUp(ctx, rb, target, pl); err != nil {
		return p, manifest, nil, err
	}
	r.progress(ctx, rb, stepDiff, 0, len(pl.stories))
	p, err = pl.finish()
	return p, snap.ManifestHash, suspects, err
}

func (r *rollbacks) planInput(ctx context.Context, rb Rollback) (planInput, Snapshot, []Suspect, error) {
	r.progress(ctx, rb, stepReplay, 0, 0)
	snap, err := r.worlds.Get(ctx, rb.Integration, rb.SnapshotSeq)
	if err != nil {
		return planInput{}, snap, nil, fmt.Errorf("read the snapshot: %w", err)
	}
	in := planInput{Between: map[entityKey][]int64{}}
	if in.World, in.Position, err = r.worlds.open(ctx, snap); err != nil {
		return in, snap, nil, fmt.Errorf("open the snapshot: %w", err)
	}
	marks, err := suspectMarks(ctx, r.pool, rb.ID, 0, 0)
	if err != nil {
		return in, snap, nil, err
	}
	suspects, err := r.withRecords(ctx, rb.Integration, marks)
	if err != nil {
		return in, snap, nil, err
	}
	if err := stillCommitted(suspects); err != nil {
		return in, snap, nil, err
	}
	for i := range suspects {
		in.Suspects = append(in.Suspects, &suspects[i].Mutation)
	}
	if err := r.between(ctx, rb, &in); err != nil {
		return in, snap, nil, err
	}
	err = r.eachSince(ctx, rb.Integration, in.Position, func(m gate.MutationRecord) error {
		in.Log = append(in.Log, &m)
		return nil
	})
	r.progress(ctx, rb, stepReplay, len(in.Log), len(in.Log))
	return in, snap, suspects, err
}

// eachSince reads the committed mutations that are not inside a position:
// those after it, and before them those that were on their way at its moment.
func (r *rollbacks) eachSince(ctx context.Context, integration string, at Position, f func(gate.MutationRecord) error) error {
	if len(at.Open) > 0 {
		open, err := r.gate.MutationsOf(ctx, integration, at.Open)
		if err != nil {
			return fmt.Errorf("read what was on its way at the snapshot: %w", err)
		}
		for _, m := range open {
			if m.State != gate.Committed || m.ID > at.Last {
				continue
			}
			if err := f(m); err != nil {
				return err
			}
		}
	}
	return r.eachMutation(ctx, integration, at.Last, f)
}

// between finds what else happened to the entities of suspects that are older
// than the snapshot.
func (r *rollbacks) between(ctx context.Context, rb Rollback, in *planInput) error {
	suspected := make(map[int64]bool, len(in.Suspects))
	for _, m := range in.Suspects {
		suspected[m.ID] = true
	}
	for _, m := range in.Suspects {
		k := keyOf(m)
		if _, done := in.Between[k]; done || !in.Position.Contains(m.ID) {
			continue
		}
		in.Between[k] = nil
		for after := m.ID; ; {
			page, err := r.gate.EntityMutations(ctx, rb.Integration, k.Type, k.ID, after, logPage)
			if err != nil {
				return fmt.Errorf("read the history of %s %s: %w", k.Type, k.ID, err)
			}
			if len(page) == 0 || page[0].ID > in.Position.Last {
				break
			}
			for _, later := range page {
				effective := later.State == gate.Committed && later.RollbackID == 0
				if effective && in.Position.Contains(later.ID) && !suspected[later.ID] {
					in.Between[k] = append(in.Between[k], later.ID)
				}
			}
			after = page[len(page)-1].ID
		}
	}
	return nil
}

// catchUp takes in what was committed while the live state was being read:
// the entities concerned are read once more, after their mutations.
func (r *rollbacks) catchUp(ctx context.Context, rb Rollback, target gate.Target, pl *planner) error {
	for range settleRounds {
		again := map[entityKey]bool{}
		err := r.eachSince(ctx, rb.Integration, pl.in.Position, func(m gate.MutationRecord) error {
			if pl.add(&m) {
				again[keyOf(&m)] = true
			}
			return nil
		})
		if err != nil || len(again) == 0 {
			return err
		}
		for k := range again {
			if err := reread(ctx, target, pl, k); err != nil {
				return err
			}
		}
	}
	return nil
}

func reread(ctx context.Context, target gate.Target, pl *planner, k entityKey) error {
	e, err := target.Read(ctx, k.Type, k.ID)
	switch {
	case errors.Is(err, gate.ErrNotFound):
		return pl.gone(k)
	case err != nil:
		return fmt.Errorf("read %s %s: %w", k.Type, k.ID, err)
	}
	return pl.see(e)
}

// eachLive reads the target's whole live state, page by page.
func eachLive(ctx context.Context, target gate.Target, f func(page []gate.Entity) error) error {
	for after := ""; ; {
		page, next, err := target.Live(ctx, after, livePage)
		if err != nil {
			return fmt.Errorf("read the live state: %w", err)
		}
		if err := f(page); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		after = next
	}
}
