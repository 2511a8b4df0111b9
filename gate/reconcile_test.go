package gate_test

import (
	"errors"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/gatetest"
)

// A row that cannot be settled does not keep the others from being closed.
func TestOneBadRowDoesNotStopReconciliation(t *testing.T) {
	to := &scripted{
		apply:  func(gate.Send) gate.Outcome { return gate.Outcome{Class: gate.Uncertain} },
		lookUp: func(gate.Key) gate.LookUp { return gate.LookUp{Class: gate.Found, Ref: "V-1"} },
	}
	w := gatetest.New(t, gate.ModeEnforce, to.sends)
	w.Submit(update(w, "evt-1", "V-bad", `{"nurse":"N-1"}`))
	good := w.Submit(update(w, "evt-2", "V-1", `{"nurse":"N-1"}`))
	_, err := w.Pool.Exec(t.Context(), `
		insert into entities (integration, type, id, version, state, updated_at) values ('care', 'visit', 'V-bad', 1, 'no JSON', $1)`, w.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(3 * time.Minute)
	r, err := w.Gate.Reconcile(t.Context(), gatetest.Care)
	if err == nil || r.Committed != 1 {
		t.Errorf("%+v, %v; want the error told and the other row committed", r, err)
	}
	if d, err := w.Gate.KeyStatus(t.Context(), gatetest.Care, good.Key); err != nil || d.State != gate.Committed {
		t.Errorf("%+v, %v", d, err)
	}
}

// A look-up that teaches nothing changes nothing that a person has seen, so a
// form that was open for longer than a round can still be sent.
func TestALookUpDoesNotOutdateAPersonsForm(t *testing.T) {
	to := &scripted{
		apply:  func(gate.Send) gate.Outcome { return gate.Outcome{Class: gate.Uncertain} },
		lookUp: func(gate.Key) gate.LookUp { return gate.LookUp{Class: gate.Forgotten} },
	}
	w := gatetest.New(t, gate.ModeEnforce, to.sends)
	d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	round := func() {
		w.Clock.Advance(3 * time.Minute)
		if _, err := w.Gate.Reconcile(t.Context(), gatetest.Care); err != nil {
			t.Fatal(err)
		}
	}
	round()
	m, err := w.Gate.Mutation(t.Context(), d.MutationID)
	if err != nil || m.State != gate.Manual {
		t.Fatalf("%s, %v", m.State, err)
	}
	round()
	if err := w.Gate.SettleByHand(t.Context(), gate.Person("anna"), m.ID, m.Version, true, "V-1", "seen"); err != nil {
		t.Errorf("after another round: %v", err)
	}
	w.CheckInvariants()
}

// Two people, or a person and a look-up, settle one row at the same moment:
// the loser is told, also where both say the same.
func TestSettlingByHandLosesToWhoWasFirst(t *testing.T) {
	to := &scripted{apply: func(gate.Send) gate.Outcome { return gate.Outcome{Class: gate.Uncertain} }}
	w := gatetest.New(t, gate.ModeEnforce, to.sends)
	d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	m, err := w.Gate.Mutation(t.Context(), d.MutationID)
	if err != nil {
		t.Fatal(err)
	}
	// A transaction that holds the row makes both callers read it before
	// either of them writes.
	tx, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select 1 from reservations where mutation_id = $1 for update`, m.ID); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	for _, name := range []string{"anna", "bert"} {
		go func() {
			results <- w.Gate.SettleByHand(t.Context(), gate.Person(name), m.ID, m.Version, true, "V-"+name, "seen")
		}()
	}
	waiting := 0
	for waiting < 2 {
		err := w.Pool.QueryRow(t.Context(), `
			select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, second := <-results, <-results
	if first == nil {
		first, second = second, first
	}
	var decided *gate.DecidedError
	after, err := w.Gate.Mutation(t.Context(), m.ID)
	if err != nil || second != nil || !errors.As(first, &decided) || decided.By != after.SettledBy || after.ExternalRef != "V-"+after.SettledBy {
		t.Errorf("%v and %v; settled by %q as %q (%v)", first, second, after.SettledBy, after.ExternalRef, err)
	}
	w.CheckInvariants()
}
