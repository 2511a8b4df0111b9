package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sluis/gate"
)

// jobInserter puts a job into the queue with the caller's transaction.
type jobInserter interface {
	InsertTx(ctx context.Context, tx pgx.Tx, args river.JobArgs, opts *river.InsertOpts) (*rivertype.JobInsertResult, error)
}

// The advisory locks (first key) of rollback work; the second is a name.
const (
	lockPlan  int32 = 0x736c7031 // "slp1": one dry run of a rollback at a time
	lockApply int32 = 0x736c6131 // "sla1": one applier of an integration at a time
)

// takeUpEvery is how often work that nobody does is looked for.
const takeUpEvery = 15 * time.Second

type planArgs struct {
	ID int64 `json:"id"`
}

// Kind names the job.
func (planArgs) Kind() string { return "rollback_plan" }

type applyArgs struct {
	ID int64 `json:"id"`
}

// Kind names the job.
func (applyArgs) Kind() string { return "rollback_apply" }

type takeUpArgs struct{}

// Kind names the job.
func (takeUpArgs) Kind() string { return "rollback_take_up" }

type planWorker struct {
	river.WorkerDefaults[planArgs]
	rollbacks *rollbacks
}

// Timeout is none: a dry run takes as long as the world is large.
func (w *planWorker) Timeout(*river.Job[planArgs]) time.Duration { return -1 }

// Work does the dry run.
func (w *planWorker) Work(ctx context.Context, job *river.Job[planArgs]) error {
	return w.rollbacks.RunPlan(ctx, job.Args.ID)
}

type applyWorker struct {
	river.WorkerDefaults[applyArgs]
	rollbacks *rollbacks
}

// Timeout is none: applying takes as long as the target does.
func (w *applyWorker) Timeout(*river.Job[applyArgs]) time.Duration { return -1 }

// Work applies the rollback, or goes on with it.
func (w *applyWorker) Work(ctx context.Context, job *river.Job[applyArgs]) error {
	return w.rollbacks.RunApply(ctx, job.Args.ID)
}

type takeUpWorker struct {
	river.WorkerDefaults[takeUpArgs]
	rollbacks *rollbacks
}

// Work looks for work that nobody does.
func (w *takeUpWorker) Work(ctx context.Context, _ *river.Job[takeUpArgs]) error {
	return w.rollbacks.takeUpAll(ctx)
}

// rollbackWorkers adds the workers of rollbacks.
func (r *rollbacks) rollbackWorkers(w *river.Workers) {
	river.AddWorker(w, &planWorker{rollbacks: r})
	river.AddWorker(w, &applyWorker{rollbacks: r})
	river.AddWorker(w, &takeUpWorker{rollbacks: r})
}

// rollbackPeriodic lists the periodic job that takes up what a dead process
// left: the queue's own rows are never the memory.
func (r *rollbacks) rollbackPeriodic() []*river.PeriodicJob {
	return []*river.PeriodicJob{river.NewPeriodicJob(river.PeriodicInterval(takeUpEvery),
		func() (river.JobArgs, *river.InsertOpts) { return takeUpArgs{}, &river.InsertOpts{MaxAttempts: 1} },
		&river.PeriodicJobOpts{ID: "rollback_take_up", RunOnStart: true})}
}

// enqueue hands work to the queue when tx commits. Attempts are few because
// the periodic round hands it out anew.
func (r *rollbacks) enqueue(ctx context.Context, tx pgx.Tx, args river.JobArgs) error {
	if r.jobs == nil {
		return nil
	}
	if _, err := r.jobs.InsertTx(ctx, tx, args, &river.InsertOpts{MaxAttempts: 2}); err != nil {
		return fmt.Errorf("enqueue %s: %w", args.Kind(), err)
	}
	return nil
}

// takeUpAll hands out each rollback that is in the midst of planning or
// applying and that nobody holds the lock for, and closes plans that expired.
func (r *rollbacks) takeUpAll(ctx context.Context) error {
	live, err := queryRollbacks(ctx, r.pool, `where r.state in ('planning', 'approved', 'applying') order by r.id`)
	if err != nil {
		return err
	}
	var errs []error
	for _, rb := range live {
		errs = append(errs, r.handOut(ctx, rb))
	}
	expired, err := queryRollbacks(ctx, r.pool, `where r.state = 'ready' and r.expires_at <= $1 order by r.id`, r.clock.Now())
	errs = append(errs, err)
	for _, rb := range expired {
		if err := r.expire(ctx, rb.ID, rb.Version); !errors.Is(err, gate.ErrStale) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *rollbacks) handOut(ctx context.Context, rb Rollback) error {
	lock, name, args := lockApply, rb.Integration, river.JobArgs(applyArgs{ID: rb.ID})
	if rb.State == RollbackPlanning {
		lock, name, args = lockPlan, rollbackName(rb.ID), planArgs{ID: rb.ID}
	}
	return r.alone(ctx, lock, name, func(ctx context.Context) error {
		return r.tx(ctx, func(tx pgx.Tx) error { return r.enqueue(ctx, tx, args) })
	})
}

// alone runs f while this process holds an advisory lock on a connection of its
// own, and does nothing when another process holds it. The lock goes when the
// process or its connection dies; what f does is safe also then, because the
// gate sends no row twice and each row is written by compare-and-set.
func (r *rollbacks) alone(ctx context.Context, lock int32, name string, f func(context.Context) error) error {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	defer conn.Release()
	var got bool
	if err := conn.QueryRow(ctx, `select pg_try_advisory_lock($1, hashtext($2))`, lock, name).Scan(&got); err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	if !got {
		return nil
	}
	defer func() {
		free := context.WithoutCancel(ctx)
		if _, err := conn.Exec(free, `select pg_advisory_unlock($1, hashtext($2))`, lock, name); err != nil {
			_ = conn.Conn().Close(free) // ends the session and its lock
		}
	}()
	return f(ctx)
}
