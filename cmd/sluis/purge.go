package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"sluis/web"
)

// purgeSessions removes sessions that have ended.
type purgeSessions struct{}

// Kind names the job.
func (purgeSessions) Kind() string { return "purge_sessions" }

// purgeEvery is the period of the purge; ended sessions open nothing anyway.
const purgeEvery = time.Hour

type purgeWorker struct {
	river.WorkerDefaults[purgeSessions]
	sessions *web.Sessions
	log      *slog.Logger
}

// Work purges once.
func (w *purgeWorker) Work(ctx context.Context, _ *river.Job[purgeSessions]) error {
	n, err := w.sessions.Purge(ctx)
	if err == nil && n > 0 {
		w.log.Info("ended sessions were removed", "sessions", n)
	}
	return err
}

// purgePeriod is the periodic job of the purge.
func purgePeriod() *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(purgeEvery), func() (river.JobArgs, *river.InsertOpts) {
		return purgeSessions{}, nil
	}, &river.PeriodicJobOpts{RunOnStart: true})
}
