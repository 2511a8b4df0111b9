package gate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

var (
	anna = gate.Person("anna")
	bert = gate.Person("bert")
)

// held submits a mutation that is held for its time, and returns its item.
func held(t testing.TB, w *gatetest.World, event string) gate.Item {
	t.Helper()
	req := w.Visit(event, "visit/1", "run-1")
	req.Event.OccurredAt = w.Clock.Now().Add(-time.Hour).Format(time.RFC3339)
	return itemOf(t, w, w.Submit(req))
}

func itemOf(t testing.TB, w *gatetest.World, d gate.Decision) gate.Item {
	t.Helper()
	if d.Verdict != gate.Quarantine || d.Item == 0 {
		t.Fatalf("not held: %+v", d)
	}
	return item(t, w, d.Item)
}

func item(t testing.TB, w *gatetest.World, id int64) gate.Item {
	t.Helper()
	it, err := w.Gate.Item(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func release(t testing.TB, w *gatetest.World, it gate.Item) gate.Item {
	t.Helper()
	it, err := w.Gate.Release(t.Context(), anna, it.ID, it.Version, "the family confirmed it")
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func actions(t testing.TB, w *gatetest.World, object string) []string {
	t.Helper()
	var list []string
	err := w.Pool.QueryRow(t.Context(), `select array_agg(action || ' by ' || actor order by id) from audit_records where object = $1`, object).Scan(&list)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestReleaseIsSentAfterTheUndoWindow(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := release(t, w, held(t, w, "evt-1"))
	if it.State != gate.ItemReleasing || it.DecidedBy != "anna" || !it.ReleaseAt.Equal(gatetest.Start.Add(10*time.Second)) {
		t.Fatalf("item %+v", it)
	}
	var notDue *gate.NotDueError
	if err := w.Gate.FinishRelease(t.Context(), it.ID); !errors.As(err, &notDue) || !notDue.Until.Equal(it.ReleaseAt) || w.Visits() != 0 {
		t.Fatalf("before its time: %v with %d visits", err, w.Visits())
	}
	it, err := w.Gate.UndoRelease(t.Context(), anna, it.ID, it.Version)
	if err != nil || it.State != gate.ItemOpen || it.DecidedBy != "" || it.Note != "" {
		t.Fatalf("undone %+v, %v", it, err)
	}
	release(t, w, it)
	w.Clock.Advance(10 * time.Second)
	for range 2 {
		if err := w.Gate.FinishRelease(t.Context(), it.ID); err != nil {
			t.Fatal(err)
		}
	}
	it = item(t, w, it.ID)
	if it.State != gate.ItemReleased || it.ReleasedAs == 0 || !strings.HasPrefix(it.Outcome, "committed") || w.Visits() != 1 {
		t.Errorf("released %+v with %d visits", it, w.Visits())
	}
	want := []string{"item.opened by planner", "item.releasing by anna", "item.undone by anna", "item.releasing by anna", "item.released by release"}
	if diff := cmp.Diff(want, actions(t, w, fmt.Sprintf("Q-%d", it.ID))); diff != "" {
		t.Errorf("audit record (-want +got):\n%s", diff)
	}
	var decided *gate.DecidedError
	if _, err := w.Gate.Reject(t.Context(), bert, it.ID, it.Version, "no"); !errors.As(err, &decided) || decided.By != "anna" || decided.State != "released" {
		t.Errorf("a decision after the act: %v", err)
	}
	w.CheckInvariants()
}

func TestNotes(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := held(t, w, "evt-1")
	for name, note := range map[string]string{
		"empty": "", "blank": " \n ", "NUL": "a\x00b", "not UTF-8": "\xff", "too long": strings.Repeat("é", 2001),
	} {
		if _, err := w.Gate.Release(t.Context(), anna, it.ID, it.Version, note); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("release with a note that is %s: %v", name, err)
		}
		if _, err := w.Gate.Reject(t.Context(), anna, it.ID, it.Version, note); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("reject with a note that is %s: %v", name, err)
		}
	}
	it, err := w.Gate.Reject(t.Context(), anna, it.ID, it.Version, strings.Repeat("é", 2000))
	if err != nil || it.State != gate.ItemRejected || len([]rune(it.Note)) != 2000 {
		t.Errorf("the longest note: %v", err)
	}
}

func TestADecisionIsBoundToTheVersionSeen(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := held(t, w, "evt-1")
	seen := it.Version
	it, err := w.Gate.UndoRelease(t.Context(), anna, it.ID, release(t, w, it).Version)
	if err != nil {
		t.Fatal(err)
	}
	var decided *gate.DecidedError
	if _, err := w.Gate.Reject(t.Context(), bert, it.ID, seen, "no"); !errors.Is(err, gate.ErrStale) || errors.As(err, &decided) {
		t.Errorf("an item opened again meanwhile: %v", err)
	}
	if _, err := w.Gate.Release(t.Context(), bert, it.ID+1, 1, "yes"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("no such item: %v", err)
	}
}

// TestTwoPeopleDecideAtOnce: one wins, the other is told who, what and when.
func TestTwoPeopleDecideAtOnce(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	released := 0
	for i := range 20 {
		it := held(t, w, fmt.Sprintf("evt-%d", i))
		var errs [2]error
		start, wg := make(chan struct{}), sync.WaitGroup{}
		wg.Go(func() {
			<-start
			_, errs[0] = w.Gate.Release(t.Context(), anna, it.ID, it.Version, "yes")
		})
		wg.Go(func() {
			<-start
			_, errs[1] = w.Gate.Reject(t.Context(), bert, it.ID, it.Version, "no")
		})
		close(start)
		wg.Wait()
		got := item(t, w, it.ID)
		loser := errs[0]
		if errs[0] == nil {
			loser = errs[1]
			released++
		}
		var decided *gate.DecidedError
		if (errs[0] == nil) == (errs[1] == nil) || !errors.As(loser, &decided) || decided.By != got.DecidedBy || !decided.At.Equal(got.DecidedAt) {
			t.Fatalf("item %s by %q; release: %v; reject: %v", got.State, got.DecidedBy, errs[0], errs[1])
		}
	}
	w.Clock.Advance(time.Minute)
	sweep(t, w.Gate)
	if w.Visits() != released {
		t.Errorf("%d visits for %d releases", w.Visits(), released)
	}
	w.CheckInvariants()
}

// TestUndoAgainstFinish plays two processes whose clocks differ a little: at
// the deadline one still undoes while the other already sends.
func TestUndoAgainstFinish(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	behind := gate.NewManualClock(gatetest.Start)
	late := w.NewGate(func(c *gate.Config) { c.Clock = behind })
	sent := 0
	for i := range 20 {
		it := release(t, w, held(t, w, fmt.Sprintf("evt-%d", i)))
		behind.Set(it.ReleaseAt.Add(-time.Millisecond))
		w.Clock.Set(it.ReleaseAt)
		var undo, finish error
		start, wg := make(chan struct{}), sync.WaitGroup{}
		wg.Go(func() {
			<-start
			_, undo = late.UndoRelease(t.Context(), anna, it.ID, it.Version)
		})
		wg.Go(func() {
			<-start
			finish = w.Gate.FinishRelease(t.Context(), it.ID)
		})
		close(start)
		wg.Wait()
		if finish != nil {
			t.Fatal(finish)
		}
		got := item(t, w, it.ID)
		switch {
		case undo == nil && got.State == gate.ItemOpen:
		case errors.Is(undo, gate.ErrStale) && got.State == gate.ItemReleased:
			sent++
		default:
			t.Fatalf("undo: %v, and the item is %s", undo, got.State)
		}
		if w.Visits() != sent {
			t.Fatalf("%d visits for %d releases", w.Visits(), sent)
		}
	}
	w.CheckInvariants()
}

func TestUndoIsTooLateAtTheDeadline(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := release(t, w, held(t, w, "evt-1"))
	w.Clock.Set(it.ReleaseAt)
	var decided *gate.DecidedError
	if _, err := w.Gate.UndoRelease(t.Context(), anna, it.ID, it.Version); !errors.As(err, &decided) {
		t.Errorf("at the deadline: %v", err)
	}
}

func TestFinishingTwiceSendsOnce(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := release(t, w, held(t, w, "evt-1"))
	w.Clock.Set(it.ReleaseAt)
	start, wg := make(chan struct{}), sync.WaitGroup{}
	for range 8 {
		g := w.NewGate()
		wg.Go(func() {
			<-start
			var notDue *gate.NotDueError
			if err := g.FinishRelease(t.Context(), it.ID); err != nil && !errors.As(err, &notDue) {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if got := item(t, w, it.ID); got.State != gate.ItemReleased || w.Visits() != 1 || len(w.System.Sends()) != 1 {
		t.Errorf("%s with %d visits, sends %v", got.State, w.Visits(), w.System.Sends())
	}
	w.CheckInvariants()
}

// TestAReleaseSurvivesACrash stops a worker at each write: after the claim,
// and after the send but before the outcome is recorded.
func TestAReleaseSurvivesACrash(t *testing.T) {
	tests := map[string]struct {
		sent bool
		row  string
	}{
		"claimed, not sent":  {false, `update quarantine_items set claimed_until = $2, version = version + 1 where id = $1`},
		"sent, not recorded": {true, `update quarantine_items set state = 'releasing', released_mutation = null, outcome = '', claimed_until = $2 where id = $1`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := gatetest.New(t, gate.ModeEnforce)
			it := release(t, w, held(t, w, "evt-1"))
			w.Clock.Set(it.ReleaseAt)
			if tt.sent {
				if err := w.Gate.FinishRelease(t.Context(), it.ID); err != nil {
					t.Fatal(err)
				}
			}
			until := w.Clock.Now().Add(2 * time.Minute)
			if _, err := w.Pool.Exec(t.Context(), tt.row, it.ID, until); err != nil {
				t.Fatal(err)
			}
			var notDue *gate.NotDueError
			if err := w.NewGate().FinishRelease(t.Context(), it.ID); !errors.As(err, &notDue) {
				t.Errorf("while the claim holds: %v", err)
			}
			w.Clock.Set(until)
			sweep(t, w.NewGate())
			if got := item(t, w, it.ID); got.State != gate.ItemReleased || got.ReleasedAs == 0 || w.Visits() != 1 || len(w.System.Sends()) != 1 {
				t.Errorf("afterwards %+v with %d visits", got, w.Visits())
			}
			w.CheckInvariants()
		})
	}
}

func TestAReleaseRecordsWhatTheTargetSaid(t *testing.T) {
	tests := []struct {
		kind    sandbox.FaultKind
		outcome string
		visits  int
	}{
		{sandbox.Refuse, "refused", 0}, {sandbox.CutAfter, "unknown", 1},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			w := gatetest.New(t, gate.ModeEnforce)
			it := release(t, w, held(t, w, "evt-1"))
			if err := w.System.SetFaults([]sandbox.Fault{{Kind: tt.kind, Count: 1}}); err != nil {
				t.Fatal(err)
			}
			w.Clock.Set(it.ReleaseAt)
			if err := w.Gate.FinishRelease(t.Context(), it.ID); err != nil {
				t.Fatal(err)
			}
			it = item(t, w, it.ID)
			if it.State != gate.ItemReleased || !strings.HasPrefix(it.Outcome, tt.outcome) || w.Visits() != tt.visits {
				t.Errorf("%+v with %d visits", it, w.Visits())
			}
		})
	}
}

func TestAReleaseWhoseBasisMovedIsSuperseded(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	ref := w.Submit(w.Visit("evt-0", "visit/1", "run-0")).ExternalRef
	update := func(event, nurse string, late time.Duration) gate.Decision {
		req := w.Visit(event, "visit/1", "run-1")
		req.Event.OccurredAt = w.Clock.Now().Add(-late).Format(time.RFC3339)
		req.Mutation = gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: ref, Subject: "C-1", Body: []byte(`{"nurse":"` + nurse + `"}`)}
		return w.Submit(req)
	}
	moved, still := itemOf(t, w, update("evt-1", "N-2", time.Hour)), itemOf(t, w, update("evt-2", "N-3", time.Hour))
	if moved.Current == nil || moved.Current.Version != 1 || moved.Moved() {
		t.Fatalf("item %+v", moved)
	}
	w.Clock.Advance(time.Second)
	update("evt-3", "N-4", 0)
	if moved = item(t, w, moved.ID); !moved.Moved() {
		t.Error("the page is not warned that the entity moved since the item was opened")
	}
	release(t, w, moved)
	update("evt-4", "N-5", 0)
	w.Clock.Advance(10 * time.Second)
	if err := w.Gate.FinishRelease(t.Context(), moved.ID); err != nil {
		t.Fatal(err)
	}
	if got := item(t, w, moved.ID); got.State != gate.ItemSuperseded || !strings.Contains(got.Outcome, "version 2 to 3") {
		t.Errorf("moved after the decision: %s, %q", got.State, got.Outcome)
	}
	w.Clock.Set(release(t, w, still).ReleaseAt)
	if err := w.Gate.FinishRelease(t.Context(), still.ID); err != nil {
		t.Fatal(err)
	}
	if got := item(t, w, still.ID); got.State != gate.ItemReleased {
		t.Errorf("moved before the decision, as the person saw: %s, %q", got.State, got.Outcome)
	}
	w.CheckInvariants()
}

func TestAReleaseWhoseKeyARollbackClosedIsSuperseded(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	it := release(t, w, held(t, w, "evt-1"))
	_, err := w.Pool.Exec(t.Context(), `insert into tombstones (integration, natural_key, rollback_id, mutation_id, at) values ($1, $2, 7, $3, $4)`,
		gatetest.Care, it.Mutation.NaturalKey[:], it.Mutation.ID, w.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Set(it.ReleaseAt)
	if err := w.Gate.FinishRelease(t.Context(), it.ID); err != nil {
		t.Fatal(err)
	}
	if got := item(t, w, it.ID); got.State != gate.ItemSuperseded || !strings.Contains(got.Outcome, "R-7") || w.Visits() != 0 {
		t.Errorf("%s, %q with %d visits", got.State, got.Outcome, w.Visits())
	}
}

func sweep(t testing.TB, g *gate.Gate) {
	t.Helper()
	if err := g.SweepReleases(t.Context()); err != nil {
		t.Fatal(err)
	}
}
