package gate_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

func TestSubmitForwardsOnceAndProjects(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	if d.Verdict != gate.Forward || d.State != gate.Committed || d.ExternalRef == "" {
		t.Fatalf("decision %+v", d)
	}
	p, err := w.Gate.Projected(t.Context(), gatetest.Care, "visit", d.ExternalRef)
	if err != nil || p.Version != 1 || p.LastMutation != d.MutationID {
		t.Fatalf("projection %+v, %v", p, err)
	}
	again := w.Submit(w.Visit("evt-1", "visit/1", "run-2"))
	if again.Verdict != gate.Drop || again.Reason != gate.ReasonReplay || again.ExternalRef != d.ExternalRef ||
		again.State != gate.Committed || !again.FirstSeen.Equal(gatetest.Start) {
		t.Errorf("replay %+v", again)
	}
	if w.Visits() != 1 {
		t.Errorf("%d visits", w.Visits())
	}
	w.CheckInvariants()
}

func TestSubmitInEveryMode(t *testing.T) {
	tests := []struct {
		mode      gate.Mode
		visits    int
		verdict   gate.Verdict
		decisions int
	}{
		{gate.ModeOff, 2, gate.Forward, 0},
		{gate.ModeShadow, 2, gate.Forward, 1},
		{gate.ModeEnforce, 1, gate.Drop, 1},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode), func(t *testing.T) {
			w := gatetest.New(t, tt.mode)
			w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
			d := w.Submit(w.Visit("evt-1", "visit/1", "run-2"))
			if d.Verdict != tt.verdict || w.Visits() != tt.visits {
				t.Errorf("verdict %s with %d visits, want %s with %d", d.Verdict, w.Visits(), tt.verdict, tt.visits)
			}
			var n int
			if err := w.Pool.QueryRow(t.Context(), `select count(*) from decisions where reason = 'replay' and decision = 'drop'`).Scan(&n); err != nil || n != tt.decisions {
				t.Errorf("%d decisions, want %d (%v)", n, tt.decisions, err)
			}
			w.CheckInvariants()
		})
	}
}

func TestSubmitHolds(t *testing.T) {
	tests := []struct {
		name   string
		change func(*gate.Request)
		reason gate.Reason
	}{
		{"no event id", func(r *gate.Request) { r.Event.ID = "" }, gate.ReasonMissingEventID},
		{"no offset", func(r *gate.Request) { r.Event.OccurredAt = "2025-10-27T08:00:00" }, gate.ReasonNoOffset},
		{"malformed", func(r *gate.Request) { r.Event.OccurredAt = "yesterday" }, gate.ReasonMalformedTimestamp},
		{"leap second", func(r *gate.Request) { r.Event.OccurredAt = "2025-06-30T23:59:60Z" }, gate.ReasonLeapSecond},
		{"just past the limit", func(r *gate.Request) { r.Event.OccurredAt = "2025-10-27T07:54:59Z" }, gate.ReasonSkew},
		{"ahead of us", func(r *gate.Request) { r.Event.OccurredAt = "2025-10-27T08:05:01Z" }, gate.ReasonSkew},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := gatetest.New(t, gate.ModeEnforce)
			req := w.Visit("evt-1", "visit/1", "run-1")
			tt.change(&req)
			d := w.Submit(req)
			if d.Verdict != gate.Quarantine || d.Reason != tt.reason || d.Item == 0 || w.Visits() != 0 {
				t.Errorf("decision %+v with %d visits, want a hold for %s", d, w.Visits(), tt.reason)
			}
			if again := w.Submit(req); tt.reason != gate.ReasonMissingEventID && again.Item != d.Item {
				t.Errorf("the same mutation opened a second item: %d, %d", d.Item, again.Item)
			}
			w.CheckInvariants()
		})
	}
}

func TestSubmitWithinTheLimitIsForwarded(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	for i, at := range []string{"2025-10-27T07:55:00Z", "2025-10-27T09:05:00+01:00"} {
		req := w.Visit(fmt.Sprintf("evt-%d", i), "visit/1", "run-1")
		req.Event.OccurredAt = at
		if d := w.Submit(req); d.Verdict != gate.Forward {
			t.Errorf("%s: %+v", at, d)
		}
	}
}

func TestReplayComesBeforeEveryTimeCheck(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	req := w.Visit("evt-1", "visit/1", "run-1")
	w.Submit(req)
	w.Clock.Advance(11 * 24 * time.Hour)
	if d := w.Submit(req); d.Verdict != gate.Drop || d.Reason != gate.ReasonReplay {
		t.Errorf("eleven days late: %+v", d)
	}
}

func TestKeyConflictIsHeldWithItsTwin(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	first := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	req := w.Visit("evt-1", "visit/1", "run-1")
	req.Mutation.Body = []byte(`{"client":"C-1","nurse":"N-2"}`)
	d := w.Submit(req)
	if d.Verdict != gate.Quarantine || d.Reason != gate.ReasonKeyConflict {
		t.Fatalf("decision %+v", d)
	}
	it, err := w.Gate.Item(t.Context(), d.Item)
	if err != nil || it.Twin == nil || it.Twin.ID != first.MutationID {
		t.Errorf("item %+v, %v", it, err)
	}
}

func TestRunsOfOneEvent(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	if d := w.Submit(w.Visit("evt-1", "visit/1", "run-2")); d.Reason != gate.ReasonReplay {
		t.Errorf("another run's known key while open: %+v", d)
	}
	if d := w.Submit(w.Visit("evt-1", "visit/9", "run-2")); d.Reason != gate.ReasonOtherRun || d.Verdict != gate.Quarantine {
		t.Errorf("another run's new key while open: %+v", d)
	}
	last := w.Visit("evt-1", "visit/2", "run-1")
	last.Last = true
	if d := w.Submit(last); d.Verdict != gate.Forward {
		t.Errorf("the run's last: %+v", d)
	}
	if d := w.Submit(w.Visit("evt-1", "visit/8", "run-3")); d.Verdict != gate.Drop || d.Reason != gate.ReasonReplay {
		t.Errorf("another run's new key after the close: %+v", d)
	}
	if d := w.Submit(w.Visit("evt-1", "visit/3", "run-1")); d.Verdict != gate.Forward {
		t.Errorf("an effect of the run that its last overtook: %+v", d)
	}
	single := w.Visit("evt-2", "", "run-4")
	w.Submit(single)
	if d := w.Submit(w.Visit("evt-2", "visit/1", "run-5")); d.Verdict != gate.Drop {
		t.Errorf("an event without named effects closes at once: %+v", d)
	}
	w.CheckInvariants()
}

func TestSixtyFourDeliveriesOfOneEventSendOnce(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	const callers = 64
	var (
		mu                     sync.Mutex
		forwards, drops, later int
		wg                     sync.WaitGroup
		ref                    string
	)
	start := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			<-start
			d, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), w.Visit("evt-1", "visit/1", fmt.Sprintf("run-%d", i)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, gate.ErrInFlight) && d.State == gate.InFlight:
				later++
			case err != nil:
				t.Error(err)
			case d.Verdict == gate.Forward && d.State == gate.Committed:
				forwards++
				ref = d.ExternalRef
			case d.Verdict == gate.Drop && d.Reason == gate.ReasonReplay && d.State == gate.Committed:
				drops++
			default:
				t.Errorf("an answer that is not truthful: %+v", d)
			}
		})
	}
	close(start)
	wg.Wait()
	if forwards != 1 || drops+later != callers-1 || w.Visits() != 1 {
		t.Errorf("%d forwards, %d drops, %d in flight, %d visits", forwards, drops, later, w.Visits())
	}
	if sends := w.System.Sends(); len(sends) != 1 {
		t.Errorf("the record system saw %v", sends)
	}
	d := w.Submit(w.Visit("evt-1", "visit/1", "run-x"))
	if d.ExternalRef != ref {
		t.Errorf("afterwards %+v, want the ref %q", d, ref)
	}
	w.CheckInvariants()
}

func TestEveryAnswerOfATarget(t *testing.T) {
	tests := []struct {
		name   string
		fault  sandbox.Fault
		first  gate.State
		closed gate.State // after reconciliation
		visits int
	}{
		{"500 before applying", sandbox.Fault{Kind: sandbox.ErrorBefore, Count: 1}, gate.Unknown, gate.StRefused, 0},
		{"500 after applying", sandbox.Fault{Kind: sandbox.ErrorAfter, Count: 1}, gate.Unknown, gate.Committed, 1},
		{"cut after applying", sandbox.Fault{Kind: sandbox.CutAfter, Count: 1}, gate.Unknown, gate.Committed, 1},
		{"refused", sandbox.Fault{Kind: sandbox.Refuse, Count: 1}, gate.StRefused, gate.StRefused, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := gatetest.New(t, gate.ModeEnforce)
			if err := w.System.SetFaults([]sandbox.Fault{tt.fault}); err != nil {
				t.Fatal(err)
			}
			d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
			if d.State != tt.first {
				t.Fatalf("after the send: %+v, want %s", d, tt.first)
			}
			w.Clock.Advance(2*time.Minute + time.Second)
			if _, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil {
				t.Fatal(err)
			}
			got, err := w.Gate.KeyStatus(t.Context(), gatetest.Care, d.Key)
			if err != nil || got.State != tt.closed || w.Visits() != tt.visits {
				t.Errorf("after reconciliation %+v with %d visits, want %s with %d (%v)", got, w.Visits(), tt.closed, tt.visits, err)
			}
			again := w.Submit(w.Visit("evt-1", "visit/1", "run-2"))
			if again.State != gate.Committed || w.Visits() != 1 {
				t.Errorf("a redelivery: %+v with %d visits, want it applied once", again, w.Visits())
			}
			w.CheckInvariants()
		})
	}
}

func TestForgottenKeyWaitsForAPerson(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.CutAfter, Count: 1}})
	if err != nil {
		t.Fatal(err)
	}
	d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.ForgetKeys, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(3 * time.Minute)
	if r, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil || r.Manual != 1 {
		t.Fatalf("reconciled %+v, %v", r, err)
	}
	again := w.Submit(w.Visit("evt-1", "visit/1", "run-2"))
	if again.State != gate.Manual || w.Visits() != 1 {
		t.Errorf("no timer frees a key: %+v with %d visits", again, w.Visits())
	}
	m, err := w.Gate.Mutation(t.Context(), d.MutationID)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Gate.SettleByHand(t.Context(), gate.Person("anna"), m.ID, m.Version-1, true, "V-1", "seen"); err == nil {
		t.Error("a decision on an old version was taken")
	}
	if err := w.Gate.SettleByHand(t.Context(), gate.Person("anna"), m.ID, m.Version, true, "V-000001", "seen in the record system"); err != nil {
		t.Fatal(err)
	}
	var decided *gate.DecidedError
	err = w.Gate.SettleByHand(t.Context(), gate.Person("bert"), m.ID, m.Version, false, "", "not there")
	if !errors.As(err, &decided) || decided.By != "anna" {
		t.Errorf("the second decision: %v", err)
	}
	w.CheckInvariants()
}

func TestASlowWorkerSettlesNothing(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce, func(c *gate.Config) { c.SendTimeout, c.StaleAfter = time.Minute, 2*time.Minute })
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.LatencyAfter, DurationMS: 400, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan gate.Decision)
	go func() {
		d, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), w.Visit("evt-1", "visit/1", "run-1"))
		if err != nil {
			t.Error(err)
		}
		done <- d
	}()
	for w.Visits() == 0 {
		time.Sleep(time.Millisecond)
	}
	w.Clock.Advance(3 * time.Minute)
	if r, err := w.NewGate().Reconcile(t.Context(), gatetest.Care); err != nil || r.Committed != 1 {
		t.Fatalf("the other process reconciled %+v, %v", r, err)
	}
	d := <-done
	m, err := w.Gate.Mutation(t.Context(), d.MutationID)
	if err != nil || d.State != gate.Committed || m.Fence != 2 || m.SettledBy != "reconcile" {
		t.Errorf("the slow worker answers %+v; the row says fence %d by %q (%v)", d, m.Fence, m.SettledBy, err)
	}
	w.CheckInvariants()
}

func TestFrozenHoldsInEveryMode(t *testing.T) {
	for _, mode := range []gate.Mode{gate.ModeOff, gate.ModeShadow, gate.ModeEnforce} {
		t.Run(string(mode), func(t *testing.T) {
			w := gatetest.New(t, mode)
			if err := w.Gate.SetFrozen(t.Context(), gate.Person("anna"), gatetest.Care, true, 1, "stop"); err != nil {
				t.Fatal(err)
			}
			if d := w.Submit(w.Visit("evt-1", "visit/1", "run-1")); d.Reason != gate.ReasonFrozen || w.Visits() != 0 {
				t.Errorf("%+v with %d visits", d, w.Visits())
			}
		})
	}
}

func TestIntegrationsNeverMeet(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	other := w.NewGate(func(c *gate.Config) { c.Targets["other"] = w.Target })
	if err := other.EnsureIntegration(t.Context(), gate.Job("test"), gate.Integration{ID: "other", Name: "Other", Mode: gate.ModeEnforce, MaxSkew: time.Minute}); err != nil {
		t.Fatal(err)
	}
	req := w.Visit("evt-1", "visit/1", "run-1")
	d := w.Submit(req)
	req.Integration = "other"
	o, err := other.Submit(t.Context(), gate.Agent("planner"), req)
	if err != nil || o.Verdict != gate.Forward || o.Key == d.Key {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := other.KeyStatus(t.Context(), "other", d.Key); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("another integration's key: %v", err)
	}
}

func TestMalformedRequestsRecordNothing(t *testing.T) {
	tests := map[string]func(*gate.Request){
		"op":      func(r *gate.Request) { r.Mutation.Op = "upsert" },
		"type":    func(r *gate.Request) { r.Mutation.Type = "" },
		"subject": func(r *gate.Request) { r.Mutation.Subject = "" },
		"no id":   func(r *gate.Request) { r.Mutation.Op = gate.OpUpdate },
		"run":     func(r *gate.Request) { r.Run = "" },
		"NUL":     func(r *gate.Request) { r.Event.ID = "a\x00b" },
		"utf-8":   func(r *gate.Request) { r.Effect = "\xff" },
		"list":    func(r *gate.Request) { r.Mutation.Body = []byte(`[]`) },
		"doubled": func(r *gate.Request) { r.Mutation.Body = []byte(`{"a":1,"a":2}`) },
		"unsafe":  func(r *gate.Request) { r.Mutation.Body = []byte(`{"a":9223372036854775808}`) },
	}
	w := gatetest.New(t, gate.ModeEnforce)
	for name, change := range tests {
		req := w.Visit("evt-1", "visit/1", "run-1")
		change(&req)
		if _, err := w.Gate.Submit(t.Context(), gate.Agent("planner"), req); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var n int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from mutations`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d mutations were recorded (%v)", n, err)
	}
}
