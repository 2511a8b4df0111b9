package gate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/gatetest"
)

// A name that no row can hold is as good as none: a person says what it is,
// and nothing is stuck.
func TestAnAnswerWithoutAUsableNameIsAPersonsWork(t *testing.T) {
	for name, ref := range map[string]string{
		"none": "", "NUL": "V-\x001", "not UTF-8": "V-\xff", "too long for an index": strings.Repeat("é", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			to := &scripted{
				apply:  func(gate.Send) gate.Outcome { return gate.Outcome{Class: gate.Applied, Ref: ref} },
				lookUp: func(gate.Key) gate.LookUp { return gate.LookUp{Class: gate.Found, Ref: ref} },
			}
			w := gatetest.New(t, gate.ModeEnforce, to.sends)
			d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
			if d.State != gate.Unknown || d.Reason != gate.ReasonUncertainOutcome {
				t.Fatalf("after the send %+v", d)
			}
			for range 2 { // the second round looks a manual row up again
				w.Clock.Advance(3 * time.Minute)
				if _, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil {
					t.Fatal(err)
				}
			}
			m, err := w.Gate.Mutation(t.Context(), d.MutationID)
			if err != nil || m.State != gate.Manual {
				t.Fatalf("after reconciliation %s, %v", m.State, err)
			}
			for _, bad := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 513)} {
				err := w.Gate.SettleByHand(t.Context(), gate.Person("anna"), m.ID, m.Version, true, bad, "seen")
				if !errors.Is(err, gate.ErrMalformed) {
					t.Errorf("the reference %.10q: %v", bad, err)
				}
			}
			if err := w.Gate.SettleByHand(t.Context(), gate.Person("anna"), m.ID, m.Version, true, "V-1", "seen"); err != nil {
				t.Fatal(err)
			}
			w.CheckInvariants()
		})
	}
}

// One mutation is settled late, after a later one of the same entity: our
// record ends as if they had come in order.
func TestALateSettlementDoesNotOverwriteLaterOnes(t *testing.T) {
	answers := map[string]gate.OutcomeClass{"evt-1": gate.Uncertain}
	var late gate.Key
	to := &scripted{lookUp: func(gate.Key) gate.LookUp { return gate.LookUp{Class: gate.Found, Ref: "V-1"} }}
	to.apply = func(s gate.Send) gate.Outcome {
		if strings.Contains(string(s.Mutation.Body), "late") {
			late = s.Key
			return gate.Outcome{Class: answers["evt-1"]}
		}
		return gate.Outcome{Class: gate.Applied, Ref: "V-1"}
	}
	tests := []struct {
		name  string
		after []gate.Mutation
		state string
		gone  bool
	}{
		{"a later change", []gate.Mutation{{Op: gate.OpUpdate, Body: []byte(`{"nurse":"N-2"}`)}}, `{"nurse":"N-2","room":"late"}`, false},
		{"a later delete", []gate.Mutation{{Op: gate.OpDelete, Body: []byte(`{}`)}}, `{"nurse":"N-1","room":"late"}`, true},
		{"a later delete and create", []gate.Mutation{{Op: gate.OpDelete, Body: []byte(`{}`)}, {Op: gate.OpCreate, Body: []byte(`{"nurse":"N-3"}`)}}, `{"nurse":"N-3"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := gatetest.New(t, gate.ModeEnforce, to.sends)
			w.Submit(update(w, "evt-0", "V-1", `{"nurse":"N-0"}`))
			first := w.Submit(update(w, "evt-1", "V-1", `{"nurse":"N-1","room":"late"}`))
			if first.State != gate.Unknown || first.Key != late {
				t.Fatalf("%+v", first)
			}
			for i, m := range tt.after {
				req := update(w, fmt.Sprintf("evt-%d", i+2), "V-1", `{}`)
				req.Mutation.Op, req.Mutation.Body = m.Op, m.Body
				w.Submit(req)
			}
			w.Clock.Advance(3 * time.Minute)
			if r, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil || r.Committed != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			p, err := w.Gate.Projected(t.Context(), gatetest.Care, "visit", "V-1")
			if err != nil || string(p.State) != tt.state || p.Deleted != tt.gone {
				t.Errorf("%s deleted %v, want %s %v (%v)", p.State, p.Deleted, tt.state, tt.gone, err)
			}
		})
	}
}

// What the target confirms exists: an update after a delete brings the entity
// back into our record.
func TestAnUpdateAfterADeleteThatTheTargetTook(t *testing.T) {
	to := &scripted{apply: func(gate.Send) gate.Outcome { return gate.Outcome{Class: gate.Applied, Ref: "V-1"} }}
	w := gatetest.New(t, gate.ModeEnforce, to.sends)
	w.Submit(update(w, "evt-0", "V-1", `{"nurse":"N-0"}`))
	gone := update(w, "evt-1", "V-1", `{}`)
	gone.Mutation.Op = gate.OpDelete
	w.Submit(gone)
	w.Submit(update(w, "evt-2", "V-1", `{"nurse":"N-2"}`))
	p, err := w.Gate.Projected(t.Context(), gatetest.Care, "visit", "V-1")
	if err != nil || p.Deleted || string(p.State) != `{"nurse":"N-2"}` || p.Version != 3 {
		t.Errorf("%+v %s, %v", p, p.State, err)
	}
}

// Several first changes of an entity that we do not know yet settle at once:
// none is lost.
func TestFirstChangesOfAnUnknownEntityAtOnce(t *testing.T) {
	const callers = 8
	var all sync.WaitGroup
	all.Add(callers)
	to := &scripted{apply: func(gate.Send) gate.Outcome {
		all.Done()
		all.Wait() // so that they settle together
		return gate.Outcome{Class: gate.Applied, Ref: "V-1"}
	}}
	w := gatetest.New(t, gate.ModeEnforce, to.sends)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			req := update(w, fmt.Sprintf("evt-%d", i), "V-1", fmt.Sprintf(`{"field%d":%d}`, i, i))
			if _, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), req); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p, err := w.Gate.Projected(t.Context(), gatetest.Care, "visit", "V-1")
	if err != nil || p.Version != callers || strings.Count(string(p.State), "field") != callers {
		t.Errorf("version %d: %s (%v)", p.Version, p.State, err)
	}
}
