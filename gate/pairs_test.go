package gate_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

func scan(t testing.TB, g *gate.Gate) gate.ScanResult {
	t.Helper()
	r, err := g.ScanPairs(t.Context(), gate.Job("nightly scan"), gatetest.Care)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func allPairs(t testing.TB, w *gatetest.World) []gate.Pair {
	t.Helper()
	pairs, err := w.Gate.Pairs(t.Context(), gate.PairFilter{Integration: gatetest.Care, Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

func copies(pairs []gate.Pair) (list [][2]int64) {
	for _, p := range pairs {
		list = append(list, [2]int64{p.First.ID, p.Second.ID})
	}
	return list
}

func TestScanFindsPairs(t *testing.T) {
	type step struct {
		event, effect, run string
		wait               time.Duration // before it
	}
	tests := map[string]struct {
		steps []step
		want  [][2]int // of steps, newest pair first
	}{
		"other event":             {[]step{{"evt-1", "a", "r", 0}, {"evt-2", "a", "r", time.Hour}}, [][2]int{{0, 1}}},
		"same key passed through": {[]step{{"evt-1", "a", "r", 0}, {"evt-1", "a", "r", time.Hour}}, [][2]int{{0, 1}}},
		"other content":           {[]step{{"evt-1", "a", "r", 0}, {"evt-2", "b", "r", time.Hour}}, nil},
		"at the window's edge":    {[]step{{"evt-1", "a", "r", 0}, {"evt-2", "a", "r", 72 * time.Hour}}, [][2]int{{0, 1}}},
		"past the window":         {[]step{{"evt-1", "a", "r", 0}, {"evt-2", "a", "r", 72*time.Hour + time.Second}}, nil},
		"nearest earlier one":     {[]step{{"evt-1", "a", "r", 0}, {"evt-2", "a", "r", 1}, {"evt-3", "a", "r", 1}}, [][2]int{{1, 2}, {0, 1}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := gatetest.New(t, gate.ModeOff)
			var ids []int64
			for _, s := range tt.steps {
				w.Clock.Advance(s.wait)
				ids = append(ids, w.Submit(w.Visit(s.event, s.effect, s.run)).MutationID)
			}
			var want [][2]int64
			for _, p := range tt.want {
				want = append(want, [2]int64{ids[p[0]], ids[p[1]]})
			}
			if r := scan(t, w.Gate); r.Found != len(want) || r.From != 0 || r.To != ids[len(ids)-1] {
				t.Errorf("scan %+v", r)
			}
			if diff := cmp.Diff(want, copies(allPairs(t, w))); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			if r := scan(t, w.Gate); r.Found != 0 || r.From != r.To {
				t.Errorf("the second scan read again: %+v", r)
			}
		})
	}
}

func TestOneRunRepeatingItselfWithinAnEventIsNoPair(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	first, second := w.Visit("evt-1", "a", "r"), w.Visit("evt-1", "b", "r")
	second.Mutation.Body = first.Mutation.Body
	w.Submit(first)
	w.Submit(second)
	if r := scan(t, w.Gate); r.Found != 0 {
		t.Errorf("two effects of one run: %+v", r)
	}
	second.Run, second.Effect = "r2", "c"
	w.Submit(second)
	if r := scan(t, w.Gate); r.Found != 1 {
		t.Errorf("the same by another run: %+v", r)
	}
}

func TestScanStopsBeforeWhatIsNotSettled(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	first := w.Submit(w.Visit("evt-1", "a", "r")).MutationID
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.CutAfter, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	unknown := w.Submit(w.Visit("evt-2", "a", "r")).MutationID
	third := w.Submit(w.Visit("evt-3", "a", "r")).MutationID
	if r := scan(t, w.Gate); r.To != first || r.Found != 0 {
		t.Errorf("past a row whose outcome is not known: %+v", r)
	}
	w.Clock.Advance(3 * time.Minute)
	if _, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil {
		t.Fatal(err)
	}
	if r := scan(t, w.Gate); r.From != first || r.To != third || r.Found != 2 {
		t.Errorf("after it settled: %+v", r)
	}
	if diff := cmp.Diff([][2]int64{{unknown, third}, {first, unknown}}, copies(allPairs(t, w))); diff != "" {
		t.Errorf("pairs (-want +got):\n%s", diff)
	}
}

func TestARowSettledByHandIsScannedAfterAll(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	w.Submit(w.Visit("evt-1", "a", "r"))
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.CutAfter, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	id := w.Submit(w.Visit("evt-2", "a", "r")).MutationID
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.ForgetKeys, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(3 * time.Minute)
	if _, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil {
		t.Fatal(err)
	}
	if r := scan(t, w.Gate); r.To != id || r.Found != 0 {
		t.Fatalf("the scan does not pass a row that a person must settle: %+v", r)
	}
	m, err := w.Gate.Mutation(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Gate.SettleByHand(t.Context(), anna, id, m.Version, true, "V-000002", "seen in the record system"); err != nil {
		t.Fatal(err)
	}
	if r := scan(t, w.Gate); r.From != id-1 || r.Found != 1 {
		t.Errorf("after it was settled by hand: %+v", r)
	}
}

// TestScansAndWritersAtOnce: whatever the order of commits, each repeat is
// found once.
func TestScansAndWritersAtOnce(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	const events = 40
	var writers, scanners sync.WaitGroup
	done := make(chan struct{})
	for worker := range 4 {
		writers.Go(func() {
			for i := range events / 4 {
				for copy := range 2 {
					req := w.Visit(fmt.Sprintf("evt-%d-%d-%d", worker, i, copy), fmt.Sprintf("visit/%d-%d", worker, i), "r")
					if _, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), req); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 2 {
		scanners.Go(func() {
			for {
				if _, err := w.Gate.ScanPairs(t.Context(), gate.Job("scan"), gatetest.Care); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writers.Wait()
	close(done)
	scanners.Wait()
	scan(t, w.Gate)
	if pairs := allPairs(t, w); len(pairs) != events {
		t.Errorf("%d pairs, want %d", len(pairs), events)
	}
}

func TestPairsSayWhatTouchedEachCopy(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	first := w.Submit(w.Visit("evt-1", "a", "r"))
	w.Submit(w.Visit("evt-2", "a", "r"))
	for i := range 2 {
		req := w.Visit(fmt.Sprintf("evt-%d", 3+i), "a", "r")
		req.Mutation = gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: first.ExternalRef, Subject: "C-1", Body: fmt.Appendf(nil, `{"nurse":"N-%d"}`, i)}
		w.Submit(req)
	}
	scan(t, w.Gate)
	pairs := allPairs(t, w)
	if len(pairs) != 1 || pairs[0].FirstTouched != 2 || pairs[0].SecondTouched != 0 {
		t.Fatalf("pairs %+v", pairs)
	}
	p, err := w.Gate.Pair(t.Context(), pairs[0].ID)
	if diff := cmp.Diff(pairs[0], p); err != nil || diff != "" {
		t.Errorf("%v; one pair against its list (-list +one):\n%s", err, diff)
	}
}

func TestTheCopiesOfAPairDoNotTouchEachOther(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	visit := w.Submit(w.Visit("evt-1", "a", "r")).ExternalRef
	for i := range 2 {
		req := w.Visit(fmt.Sprintf("evt-%d", 2+i), "a", "r")
		req.Mutation = gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: visit, Subject: "C-1", Body: []byte(`{"nurse":"N-2"}`)}
		w.Submit(req)
	}
	scan(t, w.Gate)
	if pairs := allPairs(t, w); len(pairs) != 1 || pairs[0].FirstTouched != 0 || pairs[0].SecondTouched != 0 {
		t.Errorf("pairs %+v", pairs)
	}
}

func TestJudgePair(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	w.Submit(w.Visit("evt-1", "a", "r"))
	w.Submit(w.Visit("evt-2", "a", "r"))
	scan(t, w.Gate)
	p := allPairs(t, w)[0]
	for name, bad := range map[string]struct {
		verdict gate.PairState
		note    string
	}{"no note": {gate.PairDuplicate, ""}, "open": {gate.PairOpen, "x"}, "undone": {gate.PairUndone, "x"}} {
		if _, err := w.Gate.JudgePair(t.Context(), anna, p.ID, p.Version, bad.verdict, bad.note); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	judged, err := w.Gate.JudgePair(t.Context(), anna, p.ID, p.Version, gate.PairDistinct, "two visits a day")
	if err != nil || judged.State != gate.PairDistinct || judged.DecidedBy != "anna" {
		t.Fatalf("judged %+v, %v", judged, err)
	}
	var decided *gate.DecidedError
	if _, err := w.Gate.JudgePair(t.Context(), bert, p.ID, p.Version, gate.PairDuplicate, "the repeat"); !errors.As(err, &decided) || decided.By != "anna" || decided.What != fmt.Sprintf("P-%d", p.ID) {
		t.Errorf("a verdict on an old version: %v", err)
	}
	if _, err := w.Gate.JudgePair(t.Context(), bert, p.ID, judged.Version, gate.PairDuplicate, "I asked: it is the repeat"); err != nil {
		t.Errorf("a verdict changed by one who has seen it: %v", err)
	}
	for state, want := range map[gate.PairState]int64{gate.PairOpen: 0, gate.PairDistinct: 0, gate.PairDuplicate: 1} {
		n, err := w.Gate.CountPairs(t.Context(), gate.PairFilter{Integration: gatetest.Care, States: []gate.PairState{state}})
		if err != nil || n != want {
			t.Errorf("%d pairs are %s, want %d (%v)", n, state, want, err)
		}
	}
	want := []string{"pair.found by nightly scan", "pair.judged by anna", "pair.judged by bert"}
	if diff := cmp.Diff(want, actions(t, w, fmt.Sprintf("P-%d", p.ID))); diff != "" {
		t.Errorf("audit record (-want +got):\n%s", diff)
	}
	if _, err := w.Gate.JudgePair(t.Context(), anna, p.ID+1, 1, gate.PairDistinct, "x"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("no such pair: %v", err)
	}
}

func TestPairsAreListedByPage(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	for i := range 4 {
		w.Submit(w.Visit(fmt.Sprintf("evt-%d", i), "a", "r"))
	}
	scan(t, w.Gate)
	all := allPairs(t, w)
	page, err := w.Gate.Pairs(t.Context(), gate.PairFilter{Integration: gatetest.Care, Before: all[0].ID, Limit: 1})
	if err != nil || len(page) != 1 || page[0].ID != all[1].ID {
		t.Errorf("the second page: %+v, %v", page, err)
	}
	late, err := w.Gate.Pairs(t.Context(), gate.PairFilter{Integration: gatetest.Care, AfterSeq: all[1].Second.ID})
	if err != nil || len(late) != 1 || late[0].ID != all[0].ID {
		t.Errorf("pairs after a mutation: %+v, %v", late, err)
	}
	at, err := w.Gate.LastScan(t.Context(), gatetest.Care)
	if err != nil || !at.Equal(w.Clock.Now()) {
		t.Errorf("last scan %s, %v", at, err)
	}
}
