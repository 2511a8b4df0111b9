package snapshots

import (
	"context"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sluis/gate"
)

// startJobs runs a River client with this service's work, and returns the
// kinds of the jobs that end, in their order.
func (f *sealing) startJobs() <-chan *river.Event {
	f.t.Helper()
	workers := river.NewWorkers()
	f.Workers(workers)
	client, err := river.NewClient(riverpgxv5.New(f.db), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		Workers:           workers,
		PeriodicJobs:      f.PeriodicJobs(),
		FetchCooldown:     10 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		TestOnly:          true,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.SetJobs(client)
	events, cancel := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled)
	f.t.Cleanup(cancel)
	if err := client.Start(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			f.t.Error(err)
		}
	})
	return events
}

// await waits for a job of a kind to end.
func (f *sealing) await(events <-chan *river.Event, kind string) *river.Event {
	f.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if e.Job.Kind == kind {
				return e
			}
		case <-deadline:
			f.t.Fatalf("no job of kind %s ended", kind)
		}
	}
}

func TestJobsTakeAndVerify(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{}`, 0)
	events := f.startJobs()
	seen := map[string]bool{}
	for !seen["snapshot"] || !seen["snapshot_verify"] {
		e := <-events
		if e.Kind != river.EventKindJobCompleted {
			t.Fatalf("%s ended as %s: %v", e.Job.Kind, e.Kind, e.Job.Errors)
		}
		seen[e.Job.Kind] = true
	}
	// The period makes the round, and each integration's snapshot, unique.
	res, err := f.jobs.Insert(t.Context(), snapshotArgs{"care"}, oncePer(snapshotEvery))
	if err != nil || !res.UniqueSkippedAsDuplicate {
		t.Errorf("second snapshot of a period: %+v, %v", res, err)
	}
	if err := f.RequestVerify(t.Context(), gate.Person("anna"), "care"); err != nil {
		t.Fatal(err)
	}
	f.await(events, "snapshot_verify")
	var by string
	err = f.db.QueryRow(t.Context(), `
		select actor from audit_records where action = 'snapshot.verified' order by id desc limit 1`).Scan(&by)
	if err != nil || by != "anna" {
		t.Errorf("verified by %q, %v", by, err)
	}
	var requests int
	err = f.db.QueryRow(t.Context(), `
		select count(*) from audit_records where action = 'snapshot.verify_requested' and actor = 'anna'`).Scan(&requests)
	if err != nil || requests != 1 {
		t.Errorf("%d requests in the audit record, %v", requests, err)
	}
	f.sound()
}

func TestPeriodsStartOnTheClock(t *testing.T) {
	at := time.Date(2025, 10, 26, 1, 59, 59, 0, time.UTC)
	if next := onTheClock(snapshotEvery).Next(at); !next.Equal(at.Add(time.Second)) {
		t.Errorf("next snapshot at %v", next)
	}
	if next := onTheClock(verifyEvery).Next(at); !next.Equal(time.Date(2025, 10, 27, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("next verification at %v", next)
	}
}

// A broken chain is not tried again, and asks for a verification.
func TestBrokenChainAsksForVerification(t *testing.T) {
	t.Parallel()
	f := chainOf(t, 1)
	if _, err := f.store.Put(t.Context(), manifestKey("care", 2), []byte("not ours"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	events := f.startJobs()
	if e := f.await(events, "snapshot"); e.Kind != river.EventKindJobCancelled {
		t.Errorf("the snapshot ended as %s", e.Kind)
	}
	var requests int
	err := f.db.QueryRow(t.Context(), `
		select count(*) from audit_records where action = 'snapshot.verify_requested'`).Scan(&requests)
	if err != nil || requests != 1 {
		t.Errorf("%d requests, %v", requests, err)
	}
}
