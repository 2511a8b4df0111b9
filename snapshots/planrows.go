package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

var planRowColumns = []string{
	"rollback_id", "row", "kind", "group_key", "op", "entity_type", "entity_id", "subject", "body",
	"base", "expected", "live", "live_version", "live_by", "live_at", "choice", "undoes", "contaminated", "state", "detail",
}

// insertRows writes a plan's rows in one stream.
func insertRows(ctx context.Context, tx pgx.Tx, id int64, rows []Row) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"rollback_rows"}, planRowColumns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		w := rows[i]
		return []any{
			id, int32(w.Row), string(w.Kind), w.GroupKey, string(w.Op), w.EntityType, w.EntityID, w.Subject, []byte(w.Body),
			bytesOf(w.Base), bytesOf(w.Expected), bytesOf(w.Live), w.LiveVersion, w.LiveBy, optionalTime(w.LiveAt), w.Choice,
			idsOf(w.Undoes), idsOf(w.Contaminated), string(w.State), w.Detail,
		}, nil
	}))
	if err != nil {
		return fmt.Errorf("write the rows of %s: %w", rollbackName(id), err)
	}
	return nil
}

// bytesOf keeps nil, an absent state, apart from an empty one.
func bytesOf(v json.RawMessage) []byte { return v }

// optionalTime makes the zero time null.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// idsOf makes nil an empty list: the columns are not null.
func idsOf(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}

const rowColumns = `w.rollback_id, w.row, w.kind, w.group_key, w.op, w.entity_type, w.entity_id, w.subject, w.body,
	w.base, w.expected, w.live, w.live_version, w.live_by, w.live_at, w.choice, w.undoes, w.contaminated, w.state,
	coalesce(w.mutation_id, 0), w.detail, w.done_at`

func scanRow(row pgx.CollectableRow) (Row, error) {
	var w Row
	var body, base, expected, live []byte
	var liveAt, doneAt *time.Time
	err := row.Scan(&w.Rollback, &w.Row, &w.Kind, &w.GroupKey, &w.Op, &w.EntityType, &w.EntityID, &w.Subject, &body,
		&base, &expected, &live, &w.LiveVersion, &w.LiveBy, &liveAt, &w.Choice, &w.Undoes, &w.Contaminated, &w.State,
		&w.MutationID, &w.Detail, &doneAt)
	w.Body, w.Base, w.Expected, w.Live = body, base, expected, live
	w.LiveAt, w.DoneAt = timeOf(liveAt), timeOf(doneAt)
	return w, err
}

func queryRows(ctx context.Context, q querier, where string, args ...any) ([]Row, error) {
	rows, err := q.Query(ctx, `select `+rowColumns+` from rollback_rows w `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read plan rows: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return nil, fmt.Errorf("read plan rows: %w", err)
	}
	return found, nil
}

// Rows is a page of a plan's rows after afterRow (0 for the first), of one
// group or, for an empty key, of all. A limit outside 1 to 500 is 50.
func (r *rollbacks) Rows(ctx context.Context, id int64, groupKey string, afterRow, limit int) ([]Row, error) {
	if limit < 1 || limit > maxList {
		limit = 50
	}
	return queryRows(ctx, r.pool, `
		where w.rollback_id = $1 and ($2 = '' or w.group_key = $2) and w.row > $3 order by w.row limit $4`,
		id, groupKey, afterRow, limit)
}

// sentRows reads what approval sends, in the order of sending.
func sentRows(ctx context.Context, q querier, id int64) ([]Row, error) {
	return queryRows(ctx, q, `
		where w.rollback_id = $1 and w.kind in ('compensation', 'decision') and w.choice = 'restore' order by w.row`, id)
}

// Groups lists a plan's rows as like ones read as one line each: 312 removals
// of one type are one group. The order is that of their first rows.
func (r *rollbacks) Groups(ctx context.Context, id int64) ([]Group, error) {
	rows, err := r.pool.Query(ctx, `
		select g.group_key, g.state, g.n, t.subjects, t.first from (
		  select group_key, state, count(*) as n from rollback_rows where rollback_id = $1 group by group_key, state
		) g join (
		  select group_key, count(distinct subject) as subjects, min(row) as first
		  from rollback_rows where rollback_id = $1 group by group_key
		) t on t.group_key = g.group_key
		order by t.first, g.state`, id)
	if err != nil {
		return nil, fmt.Errorf("group the rows of %s: %w", rollbackName(id), err)
	}
	var groups []Group
	var firsts []int
	var key string
	var state RowState
	var n, subjects, first int
	_, err = pgx.ForEachRow(rows, []any{&key, &state, &n, &subjects, &first}, func() error {
		if len(groups) == 0 || groups[len(groups)-1].Key != key {
			groups = append(groups, Group{Key: key, Subjects: subjects, ByState: map[RowState]int{}})
			firsts = append(firsts, first)
		}
		g := &groups[len(groups)-1]
		g.Count += n
		g.ByState[state] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("group the rows of %s: %w", rollbackName(id), err)
	}
	samples, err := queryRows(ctx, r.pool, `where w.rollback_id = $1 and w.row = any($2) order by w.row`, id, firsts)
	if err != nil {
		return nil, err
	}
	for i := range min(len(groups), len(samples)) {
		groups[i].sample(samples[i])
	}
	return groups, nil
}

func (g *Group) sample(w Row) {
	g.Sample, g.Kind, g.Op, g.Type, g.Fields = w, w.Kind, w.Op, w.EntityType, rowFields(w)
}

// SetChoice chooses restore or keep for one row of a plan that waits for
// approval, and binds the plan to a new hash. It is bound to the version that
// the person saw: gate.ErrStale when the plan has moved on.
func (r *rollbacks) SetChoice(ctx context.Context, by gate.Actor, id int64, row int, choice string, version int64) (Rollback, error) {
	if choice != choiceRestore && choice != choiceKeep {
		return Rollback{}, fmt.Errorf("choose restore or keep: %w", gate.ErrMalformed)
	}
	manifest, err := r.manifestOf(ctx, id)
	if err != nil {
		return Rollback{}, err
	}
	err = r.tx(ctx, func(tx pgx.Tx) error {
		rb, err := lockRollback(ctx, tx, id, version)
		if err != nil {
			return err
		}
		if err := r.move(ctx, tx, &rb, evChoose); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			update rollback_rows set choice = $3
			where rollback_id = $1 and row = $2 and kind in ('compensation', 'decision')`, id, row, choice)
		if err != nil {
			return fmt.Errorf("choose for row %d: %w", row, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s has no row %d to choose for: %w", rollbackName(id), row, gate.ErrNotFound)
		}
		if err := r.rehash(ctx, tx, rb, manifest); err != nil {
			return err
		}
		return r.record(ctx, tx, by, rb, "rollback.choice", map[string]any{"row": row, "choice": choice})
	})
	if err != nil {
		return Rollback{}, err
	}
	rb, err := r.Rollback(ctx, id)
	r.touch(rb)
	return rb, err
}

// manifestOf is the manifest hash of the snapshot that a plan starts from.
func (r *rollbacks) manifestOf(ctx context.Context, id int64) ([32]byte, error) {
	rb, err := r.Rollback(ctx, id)
	if err != nil {
		return [32]byte{}, err
	}
	snap, err := r.worlds.Get(ctx, rb.Integration, rb.SnapshotSeq)
	if err != nil {
		return [32]byte{}, fmt.Errorf("the snapshot of %s: %w", rollbackName(id), err)
	}
	return snap.ManifestHash, nil
}

// rehash works out hash and totals of the rows as they stand.
func (r *rollbacks) rehash(ctx context.Context, tx pgx.Tx, rb Rollback, manifest [32]byte) error {
	rows, err := queryRows(ctx, tx, `where w.rollback_id = $1 order by w.row`, rb.ID)
	if err != nil {
		return err
	}
	marks, err := suspectMarks(ctx, tx, rb.ID, 0, 0)
	if err != nil {
		return err
	}
	hash := planHash(rb.Integration, manifest, marks, rows)
	summary, err := json.Marshal(summarise(rows, rb.Summary.LaterKept, rb.Summary.Checked))
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	if _, err := tx.Exec(ctx, `update rollbacks set hash = $2, summary = $3 where id = $1`, rb.ID, hash[:], summary); err != nil {
		return fmt.Errorf("hash %s: %w", rollbackName(rb.ID), err)
	}
	return nil
}
