package gate_test

import (
	"errors"
	"strings"
	"testing"

	"sluis/gate"
	"sluis/gate/gatetest"
)

func TestCloseEvent(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	ref := gate.EventRef{Account: "home", ID: "evt-1", OccurredAt: "2025-10-27T08:00:00Z"}
	closing := func(ref gate.EventRef, run string) error {
		return w.Gate.CloseEvent(t.Context(), gate.Agent("planner"), gatetest.Care, ref, run)
	}
	raw := []byte(`{"event_id":"evt-1","account":"home","kind":"roster.changed","occurred_at":"2025-10-27T08:00:00Z","data":{}}`)
	if r, err := w.Gate.Receive(t.Context(), gate.Agent("planner"), gatetest.Care, raw); err != nil || !r.HandOn {
		t.Fatalf("%+v, %v", r, err)
	}
	w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	if err := closing(ref, "run-2"); !errors.Is(err, gate.ErrStale) {
		t.Errorf("another run closes it: %v", err)
	}
	if list, err := w.Gate.Events(t.Context(), gatetest.Care, 0, 10); err != nil || len(list) != 1 {
		t.Errorf("before the close: %v, %v", list, err)
	}
	for _, what := range []string{"its run", "its run again, because the answer was lost"} {
		if err := closing(ref, "run-1"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := w.Gate.Events(t.Context(), gatetest.Care, 0, 10); err != nil || len(list) != 0 {
		t.Errorf("after the close: %v, %v", list, err)
	}
	if err := closing(ref, "run-2"); !errors.Is(err, gate.ErrStale) {
		t.Errorf("another run closes it afterwards: %v", err)
	}
	if d := w.Submit(w.Visit("evt-1", "visit/9", "run-2")); d.Verdict != gate.Drop || d.Reason != gate.ReasonReplay {
		t.Errorf("another run's new effect: %+v", d)
	}
	if d := w.Submit(w.Visit("evt-1", "visit/2", "run-1")); d.Verdict != gate.Forward {
		t.Errorf("an effect that the close overtook: %+v", d)
	}
	var n int
	err := w.Pool.QueryRow(t.Context(), `select count(*) from audit_records where action = 'event.closed' and object = 'E-evt-1'`).Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("%d audit records of one close (%v)", n, err)
	}
	w.CheckInvariants()
}

// A run that finds that there is nothing to do closes an event that it has
// sent nothing for.
func TestCloseEventWithoutEffects(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	ref := gate.EventRef{Account: "home", ID: "evt-1", OccurredAt: "2025-10-27T08:00:00Z"}
	if err := w.Gate.CloseEvent(t.Context(), gate.Agent("planner"), gatetest.Care, ref, "run-1"); err != nil {
		t.Fatal(err)
	}
	if d := w.Submit(w.Visit("evt-1", "visit/1", "run-2")); d.Verdict != gate.Drop || w.Visits() != 0 {
		t.Errorf("another run: %+v", d)
	}
}

func TestCloseEventRefusesWhatCannotBeKept(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	tests := []struct {
		name, integration string
		ref               gate.EventRef
		run               string
		want              error
	}{
		{"no id", gatetest.Care, gate.EventRef{Account: "home"}, "run-1", gate.ErrMalformed},
		{"no run", gatetest.Care, gate.EventRef{ID: "evt-1"}, "", gate.ErrMalformed},
		{"NUL", gatetest.Care, gate.EventRef{Account: "a\x00b", ID: "evt-1"}, "run-1", gate.ErrMalformed},
		{"UTF-8", gatetest.Care, gate.EventRef{ID: "\xff"}, "run-1", gate.ErrMalformed},
		{"long", gatetest.Care, gate.EventRef{ID: strings.Repeat("x", 4000)}, "run-1", gate.ErrMalformed},
		{"long time", gatetest.Care, gate.EventRef{ID: "evt-1", OccurredAt: strings.Repeat("x", 4000)}, "run-1", gate.ErrMalformed},
		{"integration", "nowhere", gate.EventRef{ID: "evt-1"}, "run-1", gate.ErrNotFound},
	}
	for _, tt := range tests {
		err := w.Gate.CloseEvent(t.Context(), gate.Agent("planner"), tt.integration, tt.ref, tt.run)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}
