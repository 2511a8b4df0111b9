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
	"sluis/gate/audit"
)

const (
	snapshotEvery = 15 * time.Minute
	verifyEvery   = 24 * time.Hour
	takeLimit     = 5 * time.Minute
	verifyLimit   = time.Hour
)

// The actors of this package's periodic work.
var (
	snapshotJob = gate.Job("snapshot")
	verifyJob   = gate.Job("verify")
)

// roundArgs is the periodic job that gives each integration a job of its own:
// a snapshot each quarter of an hour, a verification each day. The leader
// inserts it; the period makes it, and each integration's job, unique also
// where the leader changes.
type roundArgs struct {
	What string `json:"what" river:"unique"` // "snapshot" or "verify"
}

func (roundArgs) Kind() string { return "snapshot_round" }

type snapshotArgs struct {
	Integration string `json:"integration" river:"unique"`
}

func (snapshotArgs) Kind() string { return "snapshot" }

type verifyArgs struct {
	Integration string         `json:"integration" river:"unique"`
	ActorKind   gate.ActorKind `json:"actor_kind"`
	Actor       string         `json:"actor"`
}

func (verifyArgs) Kind() string { return "snapshot_verify" }

// oncePer is unique within each period, finished jobs included.
func oncePer(period time.Duration) *river.InsertOpts {
	return &river.InsertOpts{MaxAttempts: 3, UniqueOpts: river.UniqueOpts{ByArgs: true, ByPeriod: period}}
}

// whileOpen is unique among jobs that have not ended.
func whileOpen() *river.InsertOpts {
	return &river.InsertOpts{MaxAttempts: 3, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}}
}

// onTheClock is due at each full multiple of the period, in UTC. Restarts do not
// shift it, so that no period is left out.
type onTheClock time.Duration

// Next is the start of the period after t.
func (d onTheClock) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// Workers adds the workers of snapshots and rollbacks.
func (s *Service) Workers(w *river.Workers) {
	river.AddWorker(w, &roundWorker{service: s})
	river.AddWorker(w, &snapshotWorker{service: s})
	river.AddWorker(w, &verifyWorker{service: s})
	s.rollbackWorkers(w)
}

// PeriodicJobs lists what the leader inserts: a round of snapshots each 15
// minutes, a round of verification each day, and what rollbacks need.
func (s *Service) PeriodicJobs() []*river.PeriodicJob {
	round := func(what string, every time.Duration) *river.PeriodicJob {
		return river.NewPeriodicJob(onTheClock(every),
			func() (river.JobArgs, *river.InsertOpts) { return roundArgs{What: what}, oncePer(every) },
			&river.PeriodicJobOpts{ID: "snapshot_round_" + what, RunOnStart: true})
	}
	return append([]*river.PeriodicJob{round("snapshot", snapshotEvery), round("verify", verifyEvery)}, s.rollbackPeriodic()...)
}

type roundWorker struct {
	river.WorkerDefaults[roundArgs]
	service *Service
}

// Work inserts each integration's job.
func (w *roundWorker) Work(ctx context.Context, job *river.Job[roundArgs]) error {
	client, err := river.ClientFromContextSafely[pgx.Tx](ctx)
	if err != nil {
		return fmt.Errorf("snapshot round: %w", err)
	}
	integrations, err := w.service.gate.Integrations(ctx)
	if err != nil {
		return fmt.Errorf("snapshot round: %w", err)
	}
	var params []river.InsertManyParams
	for _, i := range integrations {
		if job.Args.What == "verify" {
			args := verifyArgs{Integration: i.ID, ActorKind: verifyJob.Kind, Actor: verifyJob.Name}
			params = append(params, river.InsertManyParams{Args: args, InsertOpts: whileOpen()})
			continue
		}
		opts := oncePer(snapshotEvery)
		opts.ScheduledAt = job.ScheduledAt // of the round's own period
		params = append(params, river.InsertManyParams{Args: snapshotArgs{i.ID}, InsertOpts: opts})
	}
	if len(params) == 0 {
		return nil
	}
	if _, err := client.InsertMany(ctx, params); err != nil {
		return fmt.Errorf("snapshot round: %w", err)
	}
	return nil
}

type snapshotWorker struct {
	river.WorkerDefaults[snapshotArgs]
	service *Service
}

func (w *snapshotWorker) Timeout(*river.Job[snapshotArgs]) time.Duration { return takeLimit }

// Work takes one snapshot.
func (w *snapshotWorker) Work(ctx context.Context, job *river.Job[snapshotArgs]) error {
	_, err := w.service.Take(ctx, snapshotJob, job.Args.Integration)
	return w.service.cancelBroken(ctx, err, job.Args.Integration)
}

type verifyWorker struct {
	river.WorkerDefaults[verifyArgs]
	service *Service
}

func (w *verifyWorker) Timeout(*river.Job[verifyArgs]) time.Duration { return verifyLimit }

// Work verifies one chain. A chain with problems is a finding, not a failure.
func (w *verifyWorker) Work(ctx context.Context, job *river.Job[verifyArgs]) error {
	by := gate.Actor{Kind: job.Args.ActorKind, Name: job.Args.Actor}
	report, err := w.service.VerifyChain(ctx, by, job.Args.Integration, nil)
	if err == nil && !report.Good() {
		w.service.log.Error("the snapshot chain is broken", "integration", job.Args.Integration,
			"problems", len(report.Problems), "first", report.Problems[0].What, "seq", report.Problems[0].Seq)
	}
	return err
}

// cancelBroken keeps River from repeating what no repeat can mend, and asks
// for a verification, whose finding makes the signal red.
func (s *Service) cancelBroken(ctx context.Context, err error, integration string) error {
	var broken *BrokenError
	if !errors.As(err, &broken) {
		return err
	}
	s.log.Error("the snapshot chain is broken", "integration", integration, "err", err)
	if s.jobs != nil {
		if failed := s.RequestVerify(ctx, snapshotJob, integration); failed != nil {
			s.log.Error("ask for a verification", "integration", integration, "err", failed)
		}
	}
	return river.JobCancel(err)
}

// RequestVerify has the chain verified soon, by a job. A request while one is
// waiting or running joins it. Its audit record is in the job's transaction.
// gate.ErrNotFound for an unknown integration.
func (s *Service) RequestVerify(ctx context.Context, by gate.Actor, integration string) error {
	if s.jobs == nil {
		return errors.New("request a verification: no job client")
	}
	if _, err := s.gate.Integration(ctx, integration); err != nil {
		return fmt.Errorf("request a verification: %w", err)
	}
	now := s.clock.Now()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		args := verifyArgs{Integration: integration, ActorKind: by.Kind, Actor: by.Name}
		job, err := s.jobs.InsertTx(ctx, tx, args, whileOpen())
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, entry(now, by, integration, "snapshot.verify_requested", "", map[string]any{
			"job": job.Job.ID, "joined": job.UniqueSkippedAsDuplicate,
		}))
	})
	if err != nil {
		return fmt.Errorf("request a verification of %s: %w", integration, err)
	}
	return nil
}
