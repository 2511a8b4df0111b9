package gate_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

// work starts a job client with the gate's workers; its channel tells what has
// been worked.
func work(t *testing.T, w *gatetest.World) <-chan *river.Event {
	t.Helper()
	workers := river.NewWorkers()
	w.Gate.Workers(workers)
	client, err := river.NewClient(riverpgxv5.New(w.Pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		Workers:           workers,
		PeriodicJobs:      w.Gate.PeriodicJobs(),
		FetchPollInterval: 50 * time.Millisecond,
		FetchCooldown:     10 * time.Millisecond,
		TestOnly:          true,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Gate.SetJobs(client)
	done, cancel := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobSnoozed, river.EventKindJobFailed)
	t.Cleanup(cancel)
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return done
}

// await waits until a job of each kind has ended in a way, in any order.
func await(t *testing.T, done <-chan *river.Event, how river.EventKind, kinds ...string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for len(kinds) > 0 {
		select {
		case e := <-done:
			if e.Kind == river.EventKindJobFailed {
				t.Fatalf("%s failed: %+v", e.Job.Kind, e.Job.Errors)
			}
			if i := slices.Index(kinds, e.Job.Kind); i >= 0 && e.Kind == how {
				kinds = slices.Delete(kinds, i, i+1)
			}
		case <-timeout:
			t.Fatalf("%v: none was %s", kinds, how)
		}
	}
}

func TestTheReleaseJobWaitsForTheGatesClock(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce, func(c *gate.Config) { c.UndoWindow = time.Second })
	it := held(t, w, "evt-1")
	done := work(t, w)
	it = release(t, w, it)
	await(t, done, river.EventKindJobSnoozed, "gate_release") // at its wall-clock time, but not yet by the trace's clock
	if w.Visits() != 0 {
		t.Error("sent within the undo window")
	}
	w.Clock.Set(it.ReleaseAt)
	await(t, done, river.EventKindJobCompleted, "gate_release")
	if got := item(t, w, it.ID); got.State != gate.ItemReleased || w.Visits() != 1 {
		t.Errorf("%s with %d visits", got.State, w.Visits())
	}
}

func TestJobsRunOnStart(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := release(t, w, held(t, w, "evt-1")) // by a process that had no jobs
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.CutAfter, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	d := w.Submit(w.Visit("evt-2", "", "run-2"))
	w.Clock.Advance(3 * time.Minute)
	done := work(t, w)
	await(t, done, river.EventKindJobCompleted, "gate_release_sweep", "gate_reconcile")
	if got := item(t, w, it.ID); got.State != gate.ItemReleased {
		t.Errorf("the sweep left the item %s", got.State)
	}
	if m, err := w.Gate.Mutation(t.Context(), d.MutationID); err != nil || m.State != gate.Committed {
		t.Errorf("reconciliation left it %s (%v)", m.State, err)
	}
}

func TestAScanIsRequestedOnce(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	if err := w.Gate.RequestScan(t.Context(), anna, gatetest.Care); err == nil {
		t.Error("a scan was accepted that nobody will do")
	}
	workers := river.NewWorkers()
	w.Gate.Workers(workers)
	idle, err := river.NewClient(riverpgxv5.New(w.Pool), &river.Config{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	w.Gate.SetJobs(idle)
	for _, by := range []gate.Actor{anna, bert} {
		if err := w.Gate.RequestScan(t.Context(), by, gatetest.Care); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := w.Pool.Query(t.Context(), `select args->>'by' from river_job where kind = 'gate_scan_pairs'`)
	if err != nil {
		t.Fatal(err)
	}
	queued, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"anna"}, queued); err != nil || diff != "" {
		t.Errorf("%v; queued (-want +got):\n%s", err, diff)
	}
	w.Submit(w.Visit("evt-1", "a", "r"))
	w.Submit(w.Visit("evt-2", "a", "r"))
	await(t, work(t, w), river.EventKindJobCompleted, "gate_scan_pairs")
	if pairs := allPairs(t, w); len(pairs) != 1 {
		t.Errorf("the requested scan found %d pairs", len(pairs))
	}
}
