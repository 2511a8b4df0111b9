package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	_ "time/tzdata" // the nightly scan's zone must exist on any machine

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// The periods and limits of the jobs. None of them is the memory of anything:
// what is to be done is in our own tables, and a sweep finds what a lost job
// left.
const (
	sweepEvery   = time.Minute
	reconcileMax = 5 * time.Minute // a round of look-ups
	releaseMax   = time.Minute     // a send and its settlement
	scanMax      = 30 * time.Minute
)

// nightly is when the pairs are scanned: 03:15, which every night has exactly
// once, in Amsterdam too.
var nightly = nightlyAt{hour: 3, minute: 15, zone: "Europe/Amsterdam"}

type reconcileArgs struct {
	Integration string `json:"integration" river:"unique"`
}

func (reconcileArgs) Kind() string { return "gate_reconcile" }

type releaseArgs struct {
	Item int64 `json:"item"`
}

func (releaseArgs) Kind() string { return "gate_release" }

type sweepArgs struct{}

func (sweepArgs) Kind() string { return "gate_release_sweep" }

type scanArgs struct {
	Integration string    `json:"integration" river:"unique"`
	By          string    `json:"by"`
	ByKind      ActorKind `json:"by_kind"`
}

func (scanArgs) Kind() string { return "gate_scan_pairs" }

func (scanArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 5, UniqueOpts: once}
}

// once keeps a job from being queued while the same one waits or runs.
var once = river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
	rivertype.JobStateRunning, rivertype.JobStateScheduled,
}}

// oncePer keeps periodic work to one job in each period. It does not ask
// whether an earlier one runs: the job of a process that was killed stays
// "running" until it is rescued, and must not keep the next period waiting.
// Rounds that overlap are harmless, by the fence of each row.
func oncePer(period time.Duration) *river.InsertOpts {
	return &river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true, ByPeriod: period}}
}

type reconcileWorker struct {
	river.WorkerDefaults[reconcileArgs]
	gate *Gate
}

func (w *reconcileWorker) Timeout(*river.Job[reconcileArgs]) time.Duration { return reconcileMax }

func (w *reconcileWorker) Work(ctx context.Context, job *river.Job[reconcileArgs]) error {
	done, err := w.gate.Reconcile(ctx, job.Args.Integration)
	if done.Looked > 0 {
		w.gate.log.Info("reconciled", "integration", job.Args.Integration, "looked", done.Looked,
			"committed", done.Committed, "refused", done.Refused, "unknown", done.Unknown, "manual", done.Manual)
		w.gate.Touch(job.Args.Integration, "signals")
	}
	return err
}

type releaseWorker struct {
	river.WorkerDefaults[releaseArgs]
	gate *Gate
}

func (w *releaseWorker) Timeout(*river.Job[releaseArgs]) time.Duration { return releaseMax }

func (w *releaseWorker) Work(ctx context.Context, job *river.Job[releaseArgs]) error {
	err := w.gate.FinishRelease(ctx, job.Args.Item)
	var notDue *NotDueError
	if errors.As(err, &notDue) {
		return river.JobSnooze(max(notDue.Until.Sub(w.gate.clock.Now()), 100*time.Millisecond))
	}
	return err
}

type sweepWorker struct {
	river.WorkerDefaults[sweepArgs]
	gate *Gate
}

func (w *sweepWorker) Timeout(*river.Job[sweepArgs]) time.Duration { return reconcileMax }

func (w *sweepWorker) Work(ctx context.Context, _ *river.Job[sweepArgs]) error {
	return w.gate.sweepReleases(ctx)
}

type scanWorker struct {
	river.WorkerDefaults[scanArgs]
	gate *Gate
}

func (w *scanWorker) Timeout(*river.Job[scanArgs]) time.Duration { return scanMax }

func (w *scanWorker) Work(ctx context.Context, job *river.Job[scanArgs]) error {
	done, err := w.gate.ScanPairs(ctx, Actor{job.Args.ByKind, job.Args.By}, job.Args.Integration)
	if err == nil {
		w.gate.log.Info("scanned for hash pairs", "integration", job.Args.Integration, "to", done.To, "found", done.Found)
	}
	return err
}

// Workers adds the gate's workers to those of a job client.
func (g *Gate) Workers(workers *river.Workers) {
	river.AddWorker(workers, &reconcileWorker{gate: g})
	river.AddWorker(workers, &releaseWorker{gate: g})
	river.AddWorker(workers, &sweepWorker{gate: g})
	river.AddWorker(workers, &scanWorker{gate: g})
}

// PeriodicJobs are the gate's: reconciliation of each integration that has a
// target here, the sweep of overdue releases, and the nightly scan for hash
// pairs. A job still running when its time comes again is not queued twice.
func (g *Gate) PeriodicJobs() []*river.PeriodicJob {
	jobs := []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(sweepEvery),
			func() (river.JobArgs, *river.InsertOpts) { return sweepArgs{}, oncePer(sweepEvery) },
			&river.PeriodicJobOpts{RunOnStart: true}),
	}
	for _, integration := range slices.Sorted(maps.Keys(g.targets)) {
		jobs = append(jobs,
			river.NewPeriodicJob(river.PeriodicInterval(g.cfg.ReconcileEvery),
				func() (river.JobArgs, *river.InsertOpts) {
					return reconcileArgs{integration}, oncePer(g.cfg.ReconcileEvery)
				},
				&river.PeriodicJobOpts{RunOnStart: true}),
			river.NewPeriodicJob(nightly,
				func() (river.JobArgs, *river.InsertOpts) {
					return scanArgs{Integration: integration, By: "nightly scan", ByKind: KindJob}, nil
				}, nil))
	}
	return jobs
}

// SetJobs gives the gate the client that it schedules jobs with. It is called
// once, before any command: the client is made from the gate's workers.
func (g *Gate) SetJobs(client *river.Client[pgx.Tx]) { g.jobs = client }

// nightlyAt is a wall-clock time of every day in a zone.
type nightlyAt struct {
	hour, minute int
	zone         string
}

// Next is the first such time after t. The embedded zone data makes a failure
// to load a programming error.
func (n nightlyAt) Next(t time.Time) time.Time {
	zone, err := time.LoadLocation(n.zone)
	if err != nil {
		panic(fmt.Sprintf("gate: the zone %s is not in the embedded data: %v", n.zone, err))
	}
	local := t.In(zone)
	next := time.Date(local.Year(), local.Month(), local.Day(), n.hour, n.minute, 0, 0, zone)
	if !next.After(t) {
		next = time.Date(local.Year(), local.Month(), local.Day()+1, n.hour, n.minute, 0, 0, zone)
	}
	return next.UTC()
}
