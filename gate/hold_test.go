package gate_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
	"sluis/gate/gatetest"
)

// A provider that retries a held event, all at once, does not fill the queue:
// two items of one mutation could both be released.
func TestConcurrentHoldsShareOneItem(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	req := w.Visit("evt-1", "visit/1", "run-1")
	req.Event.OccurredAt = "2025-10-16T08:00:00Z"
	raw := []byte(`{"event_id":"evt-2","account":"home","kind":"roster.changed","occurred_at":"2025-10-27T08:00:00Z","data":{}}`)
	other := []byte(`{"event_id":"evt-2","account":"home","kind":"roster.changed","occurred_at":"2025-10-27T08:00:00Z","data":{"nurse":"N-1"}}`)
	if _, err := w.Gate.Receive(t.Context(), gate.Agent("planner"), gatetest.Care, raw); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 12 {
		wg.Go(func() {
			<-start
			if d, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), req); err != nil || d.Item == 0 {
				t.Errorf("%+v, %v", d, err)
			}
			if r, err := w.Gate.Receive(t.Context(), gate.Agent("planner"), gatetest.Care, other); err != nil || r.Item == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	close(start)
	wg.Wait()
	for _, reason := range []gate.Reason{gate.ReasonSkew, gate.ReasonKeyConflict} {
		if n, err := w.Gate.CountItems(t.Context(), gate.ItemFilter{Integration: gatetest.Care, Reason: reason}); err != nil || n != 1 {
			t.Errorf("%d items for %s (%v)", n, reason, err)
		}
	}
	w.CheckInvariants()
}

// A person released a delivery that came late; the agent's mutation for it is
// not held for the same lateness once more.
func TestAReleasedDeliveryIsNotJudgedForTimeAgain(t *testing.T) {
	for name, occurred := range map[string]string{"late": "2025-10-16T08:00:00Z", "no offset": "2025-10-27T08:00:00"} {
		t.Run(name, func(t *testing.T) {
			w := gatetest.New(t, gate.ModeEnforce)
			raw := []byte(`{"event_id":"evt-1","account":"home","kind":"roster.changed","occurred_at":"` + occurred + `","data":{}}`)
			r, err := w.Gate.Receive(t.Context(), gate.Agent("planner"), gatetest.Care, raw)
			if err != nil || r.Item == 0 || r.HandOn {
				t.Fatalf("%+v, %v", r, err)
			}
			req := w.Visit("evt-1", "visit/1", "run-1")
			req.Event.OccurredAt = occurred
			if d := w.Submit(req); d.Verdict != gate.Quarantine {
				t.Errorf("before the release: %+v", d)
			}
			if _, err := w.Gate.Release(t.Context(), gate.Person("anna"), r.Item, 1, "it is right"); err != nil {
				t.Fatal(err)
			}
			w.Clock.Advance(11 * time.Second)
			if err := w.Gate.FinishRelease(t.Context(), r.Item); err != nil {
				t.Fatal(err)
			}
			if d := w.Submit(req); d.Verdict != gate.Forward || d.State != gate.Committed {
				t.Errorf("after the release: %+v", d)
			}
		})
	}
}

// undo closes the keys of mutations as an applied rollback does.
func undo(t *testing.T, w *gatetest.World, ids ...int64) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		return w.Gate.CloseKeys(t.Context(), tx, gate.Person("anna"), 17, ids)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An agent that plans afresh names its effects otherwise: what it sends for an
// event that was rolled back is held all the same, in every mode, and by its
// own run too. What was not undone is not sent again.
func TestNothingNewForAnEventThatWasRolledBack(t *testing.T) {
	for _, mode := range []gate.Mode{gate.ModeOff, gate.ModeShadow, gate.ModeEnforce} {
		t.Run(string(mode), func(t *testing.T) {
			w := gatetest.New(t, mode)
			d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
			w.Submit(w.Visit("evt-1", "visit/2", "run-1"))
			undo(t, w, d.MutationID)
			for _, tt := range []struct {
				effect, run string
				verdict     gate.Verdict
				reason      gate.Reason
			}{
				{"visit/1", "run-2", gate.Quarantine, gate.ReasonRolledBack},
				{"visit/2", "run-2", gate.Drop, gate.ReasonReplay},
				{"new/1", "run-2", gate.Quarantine, gate.ReasonRolledBack},
				{"new/2", "run-1", gate.Quarantine, gate.ReasonRolledBack},
			} {
				got := w.Submit(w.Visit("evt-1", tt.effect, tt.run))
				if got.Verdict != tt.verdict || got.Reason != tt.reason {
					t.Errorf("%s by %s: %+v", tt.effect, tt.run, got)
				}
				if got.Verdict != gate.Quarantine {
					continue
				}
				if it, err := w.Gate.Item(t.Context(), got.Item); err != nil || it.RollbackID != 17 {
					t.Errorf("%s by %s: the item names R-%d (%v)", tt.effect, tt.run, it.RollbackID, err)
				}
			}
			if w.Visits() != 2 {
				t.Errorf("%d visits", w.Visits())
			}
			w.CheckInvariants()
		})
	}
}

// What the store keeps as JSON can hold no NUL either.
func TestHostileBasisAndEvidenceAreMalformed(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	for name, change := range map[string]func(*gate.Request){
		"NUL in the evidence":      func(r *gate.Request) { r.Evidence = []string{"a\x00b"} },
		"evidence not UTF-8":       func(r *gate.Request) { r.Evidence = []string{"\xff"} },
		"evidence too long":        func(r *gate.Request) { r.Evidence = []string{strings.Repeat("x", 513)} },
		"NUL in the basis":         func(r *gate.Request) { r.Basis = &gate.Basis{Type: "visit", ID: "\x00", Version: 1} },
		"the basis' type":          func(r *gate.Request) { r.Basis = &gate.Basis{Type: "\x00", ID: "V-1", Version: 1} },
		"a basis' id that is long": func(r *gate.Request) { r.Basis = &gate.Basis{Type: "visit", ID: strings.Repeat("x", 513)} },
	} {
		req := w.Visit("evt-1", "visit/1", "run-1")
		change(&req)
		if _, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), req); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
