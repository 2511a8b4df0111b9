package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

// maxNames bounds the entities that a read-back names.
const maxNames = 20

// finish reads back every row that was sent, closes the keys of suspects of
// which nothing was left to undo, and ends the rollback, in one transaction.
func (a *applier) finish(ctx context.Context) error {
	a.progress(ctx, a.rb, stepReadBack, 0, len(a.rows))
	live, err := a.liveOf(ctx, a.rb.Integration, a.rows)
	if err != nil {
		return fmt.Errorf("read back %s: %w", rollbackName(a.rb.ID), err)
	}
	back, verified := readBack(a.rows, live, a.clock.Now())
	text, err := json.Marshal(back)
	if err != nil {
		return fmt.Errorf("write the read-back: %w", err)
	}
	rest, err := a.untouched(ctx)
	if err != nil {
		return err
	}
	err = a.tx(ctx, func(tx pgx.Tx) error {
		rb, err := lockRollback(ctx, tx, a.rb.ID, 0)
		if err != nil {
			return err
		}
		if err := a.move(ctx, tx, &rb, evFinish); err != nil {
			return err
		}
		if err := a.close(ctx, tx, back, text, verified); err != nil {
			return err
		}
		if len(rest) > 0 {
			if err := a.gate.CloseKeys(ctx, tx, a.by, rb.ID, rest); err != nil {
				return err
			}
		}
		return a.record(ctx, tx, a.by, rb, "rollback.applied", map[string]any{
			"rows": a.done, "compared": back.Compared, "differ": back.Differ, "closed_without_row": len(rest),
		})
	})
	if err != nil {
		return fmt.Errorf("finish %s: %w", rollbackName(a.rb.ID), err)
	}
	a.touch(a.rb)
	a.gate.Touch(a.rb.Integration, "pairs")
	a.gate.Touch(a.rb.Integration, "signals")
	return nil
}

func (a *applier) close(ctx context.Context, tx pgx.Tx, back ReadBack, text []byte, verified []int) error {
	_, err := tx.Exec(ctx, `update rollback_rows set state = 'verified' where rollback_id = $1 and row = any($2) and state = 'applied'`,
		a.rb.ID, verified)
	if err != nil {
		return fmt.Errorf("mark verified rows: %w", err)
	}
	_, err = tx.Exec(ctx, `
		update rollbacks set applied_at = $2, readback = $3, error = '', progress_step = $4, progress_done = $5, progress_total = $5
		where id = $1`, a.rb.ID, back.At, text, stepReadBack, back.Compared)
	if err != nil {
		return fmt.Errorf("store the read-back: %w", err)
	}
	return nil
}

// untouched lists suspects whose keys are still open and of which no row was
// kept, skipped or impossible: their effect is not there, so nothing may
// bring it back.
func (a *applier) untouched(ctx context.Context) ([]int64, error) {
	rows, err := a.pool.Query(ctx, `
		select mutation_id from rollback_suspects where rollback_id = $1
		except
		select unnest(undoes) from rollback_rows
		where rollback_id = $1 and (kind = 'residue' or choice = 'keep' or state = 'skipped')
		order by 1`, a.rb.ID)
	if err != nil {
		return nil, fmt.Errorf("find suspects without a row: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("find suspects without a row: %w", err)
	}
	return slices.DeleteFunc(ids, func(id int64) bool { return a.closed[id] }), nil
}

// readBack compares each applied row with the live state. It returns the rows
// that hold.
func readBack(rows []Row, live map[entityKey]gate.Entity, now time.Time) (ReadBack, []int) {
	back := ReadBack{At: now, Names: []string{}}
	verified := []int{}
	for _, w := range rows {
		if w.State != RowApplied && w.State != RowVerified {
			continue
		}
		back.Compared++
		if holds(w, live) {
			verified = append(verified, w.Row)
			continue
		}
		back.Differ++
		if name := w.EntityType + " " + w.EntityID; len(back.Names) < maxNames && !slices.Contains(back.Names, name) {
			back.Names = append(back.Names, name)
		}
	}
	return back, verified
}

// holds reports whether the live state is what the row was to make it: for an
// update in the fields that it set.
func holds(w Row, live map[entityKey]gate.Entity) bool {
	e, there := live[entityKey{w.EntityType, w.EntityID}]
	switch {
	case w.Op == gate.OpDelete:
		return !there
	case !there:
		return false
	case w.Op == gate.OpCreate:
		return same(e.State, w.Expected)
	}
	got, err := fieldsOf(e.State)
	if err != nil {
		return false
	}
	want, err := fieldsOf(w.Expected)
	if err != nil {
		return false
	}
	for _, name := range rowFields(w) {
		if !same(got[name], want[name]) {
			return false
		}
	}
	return true
}
