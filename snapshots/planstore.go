package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

const rollbackColumns = `r.id, r.integration, r.snapshot_seq, r.state, r.version, r.hash, r.created_at, r.created_by,
	r.planned_at, r.expires_at, r.approved_at, r.approved_by, r.applied_at, r.error, r.note,
	r.progress_step, r.progress_done, r.progress_total, r.summary, r.readback,
	(select count(*) from rollback_suspects s where s.rollback_id = r.id)`

func scanRollback(row pgx.CollectableRow) (Rollback, error) {
	var rb Rollback
	var hash, summary, readback []byte
	var planned, expires, approved, applied *time.Time
	var approvedBy *string
	err := row.Scan(&rb.ID, &rb.Integration, &rb.SnapshotSeq, &rb.State, &rb.Version, &hash, &rb.CreatedAt, &rb.CreatedBy,
		&planned, &expires, &approved, &approvedBy, &applied, &rb.Error, &rb.Note,
		&rb.ProgressStep, &rb.ProgressDone, &rb.ProgressTotal, &summary, &readback, &rb.Suspects)
	if err != nil {
		return rb, err
	}
	copy(rb.Hash[:], hash)
	rb.CreatedAt = rb.CreatedAt.UTC()
	rb.PlannedAt, rb.ExpiresAt = timeOf(planned), timeOf(expires)
	rb.ApprovedAt, rb.AppliedAt = timeOf(approved), timeOf(applied)
	if approvedBy != nil {
		rb.ApprovedBy = *approvedBy
	}
	if summary != nil {
		if err := json.Unmarshal(summary, &rb.Summary); err != nil {
			return rb, fmt.Errorf("read the summary: %w", err)
		}
	}
	if readback != nil {
		rb.ReadBack = new(ReadBack)
		if err := json.Unmarshal(readback, rb.ReadBack); err != nil {
			return rb, fmt.Errorf("read the read-back: %w", err)
		}
	}
	return rb, nil
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// querier is what reads need: the pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func queryRollbacks(ctx context.Context, q querier, where string, args ...any) ([]Rollback, error) {
	rows, err := q.Query(ctx, `select `+rollbackColumns+` from rollbacks r `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read rollbacks: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanRollback)
	if err != nil {
		return nil, fmt.Errorf("read rollbacks: %w", err)
	}
	return found, nil
}

func oneRollback(ctx context.Context, q querier, where string, id int64) (Rollback, error) {
	found, err := queryRollbacks(ctx, q, where, id)
	if err != nil {
		return Rollback{}, err
	}
	if len(found) == 0 {
		return Rollback{}, fmt.Errorf("%s: %w", rollbackName(id), gate.ErrNotFound)
	}
	return found[0], nil
}

// Rollback is one rollback, or gate.ErrNotFound.
func (r *rollbacks) Rollback(ctx context.Context, id int64) (Rollback, error) {
	return oneRollback(ctx, r.pool, `where r.id = $1`, id)
}

// Rollbacks is a page of an integration's rollbacks, newest first: those with
// an id below before, 0 for the first page. A limit outside 1 to 500 is 50.
func (r *rollbacks) Rollbacks(ctx context.Context, integration string, before int64, limit int) ([]Rollback, error) {
	if limit < 1 || limit > maxList {
		limit = 50
	}
	return queryRollbacks(ctx, r.pool, `where r.integration = $1 and ($2::bigint = 0 or r.id < $2) order by r.id desc limit $3`,
		integration, before, limit)
}

// bannerFor is how long a rollback stays on the banner.
const bannerFor = 24 * time.Hour

// Banner is the latest rollback that was applied, is being applied or has
// stopped, of the last 24 hours; nil when there is none.
func (r *rollbacks) Banner(ctx context.Context, integration string) (*Rollback, error) {
	found, err := queryRollbacks(ctx, r.pool, `
		where r.integration = $1 and r.state in ('applied', 'applying', 'stopped') and coalesce(r.applied_at, r.approved_at) >= $2
		order by r.id desc limit 1`, integration, r.clock.Now().Add(-bannerFor))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// Suspects is a page of what a rollback undoes, by mutation id. A limit
// outside 1 to 500 is 50.
func (r *rollbacks) Suspects(ctx context.Context, id int64, limit, offset int) ([]Suspect, error) {
	if limit < 1 || limit > maxList {
		limit = 50
	}
	rb, err := r.Rollback(ctx, id)
	if err != nil {
		return nil, err
	}
	marks, err := suspectMarks(ctx, r.pool, id, limit, offset)
	if err != nil {
		return nil, err
	}
	return r.withRecords(ctx, rb.Integration, marks)
}

// suspectMarks reads suspects with nothing but their mutation's id.
func suspectMarks(ctx context.Context, q querier, id int64, limit, offset int) ([]Suspect, error) {
	rows, err := q.Query(ctx, `
		select s.mutation_id, coalesce(s.pair_id, 0), s.source,
		       coalesce(case when p.first_mutation = s.mutation_id then p.second_mutation else p.first_mutation end, 0)
		from rollback_suspects s left join hash_pairs p on p.id = s.pair_id
		where s.rollback_id = $1 order by s.mutation_id limit nullif($2::bigint, 0) offset $3`, id, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read the suspects of %s: %w", rollbackName(id), err)
	}
	marks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Suspect, error) {
		var s Suspect
		err := row.Scan(&s.Mutation.ID, &s.PairID, &s.Source, &s.Twin)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the suspects of %s: %w", rollbackName(id), err)
	}
	return marks, nil
}

// withRecords fills in each suspect's mutation; one that the gate does not
// know is gate.ErrNotFound.
func (r *rollbacks) withRecords(ctx context.Context, integration string, marks []Suspect) ([]Suspect, error) {
	if len(marks) == 0 {
		return nil, nil
	}
	ids := make([]int64, len(marks))
	for i, s := range marks {
		ids[i] = s.Mutation.ID
	}
	records, err := r.gate.MutationsOf(ctx, integration, ids)
	if err != nil {
		return nil, fmt.Errorf("read the suspects: %w", err)
	}
	byID := make(map[int64]gate.MutationRecord, len(records))
	for _, m := range records {
		byID[m.ID] = m
	}
	for i := range marks {
		m, ok := byID[marks[i].Mutation.ID]
		if !ok {
			return nil, fmt.Errorf("suspect M-%d: %w", marks[i].Mutation.ID, gate.ErrNotFound)
		}
		marks[i].Mutation = m
	}
	return marks, nil
}

// move takes a rollback, locked in tx, through one event of the table. It
// bumps the version, so that whoever saw the state before is told.
func (r *rollbacks) move(ctx context.Context, tx pgx.Tx, rb *Rollback, ev rollbackEvent) error {
	next, err := rb.State.next(ev)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", rollbackName(rb.ID), gate.ErrStale, err)
	}
	tag, err := tx.Exec(ctx, `update rollbacks set state = $3, version = version + 1 where id = $1 and version = $2`,
		rb.ID, rb.Version, next)
	if err != nil {
		return fmt.Errorf("%s becomes %s: %w", rollbackName(rb.ID), next, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("%s moved on: %w", rollbackName(rb.ID), gate.ErrStale)
	}
	rb.State, rb.Version = next, rb.Version+1
	return nil
}

// lockRollback reads a rollback and keeps it until tx ends. A version other than 0
// has to be the current one.
func lockRollback(ctx context.Context, tx pgx.Tx, id, version int64) (Rollback, error) {
	rb, err := oneRollback(ctx, tx, `where r.id = $1 for update of r`, id)
	if err != nil {
		return rb, err
	}
	if version != 0 && rb.Version != version {
		return rb, fmt.Errorf("%s is at version %d, not %d: %w", rollbackName(id), rb.Version, version, gate.ErrStale)
	}
	return rb, nil
}

// progress tells how far a step is. It is a figure for a page, not a fact that
// anything relies on: a failure to write it is only logged.
func (r *rollbacks) progress(ctx context.Context, rb Rollback, step string, done, total int) {
	_, err := r.pool.Exec(ctx, `
		update rollbacks set progress_step = $2, progress_done = $3, progress_total = $4
		where id = $1 and state in ('planning', 'applying')`, rb.ID, step, done, total)
	if err != nil && !errors.Is(err, context.Canceled) {
		r.log.Warn("progress not written", "rollback", rb.ID, "step", step, "err", err)
	}
	r.touch(rb)
}
