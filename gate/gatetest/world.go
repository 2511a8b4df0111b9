// Package gatetest builds a whole gate for tests: a database of its own, the
// sandbox record system over real HTTP, the HTTP target, and a clock that the
// test moves.
package gatetest

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/gate/sandbox"
	"sluis/gate/source"
	"sluis/gate/target"
	"sluis/migrations/testdb"
)

// Care is the integration that New creates.
const Care = "care"

// Start is where the clock of a new world stands.
var Start = time.Date(2025, 10, 27, 8, 0, 0, 0, time.UTC)

// World is a gate and everything that it talks to.
type World struct {
	T      testing.TB
	Pool   *pgxpool.Pool
	Clock  *gate.ManualClock
	Gate   *gate.Gate
	System *sandbox.System
	Server *httptest.Server
	Target *target.HTTP
}

// New builds a world in the given mode. The test fails at its end when the
// record system applied one key twice.
func New(t testing.TB, mode gate.Mode, options ...func(*gate.Config)) *World {
	t.Helper()
	return NewAt(t, mode, Start, options...)
}

// NewAt is New with the clock at another moment.
func NewAt(t testing.TB, mode gate.Mode, start time.Time, options ...func(*gate.Config)) *World {
	t.Helper()
	w := &World{T: t, Pool: testdb.Pool(t), Clock: gate.NewManualClock(start)}
	var err error
	if w.System, err = sandbox.Open(t.TempDir(), sandbox.Options{Clock: w.Clock.Now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if keys := w.System.DoubleApplied(); len(keys) > 0 {
			t.Errorf("the record system applied %d keys twice: %v", len(keys), keys)
		}
		if err := w.System.Close(); err != nil {
			t.Error(err)
		}
	})
	w.Server = httptest.NewServer(w.System.Handler())
	t.Cleanup(w.Server.Close)
	if w.Target, err = target.New(target.Config{BaseURL: w.Server.URL}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Target.Close)
	w.Gate = w.NewGate(options...)
	err = w.Gate.EnsureIntegration(t.Context(), gate.Job("test"), gate.Integration{
		ID: Care, Name: "Care", Mode: mode, MaxSkew: 5 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// NewGate is another gate over the same database and target, as a second
// process would be.
func (w *World) NewGate(options ...func(*gate.Config)) *gate.Gate {
	w.T.Helper()
	cfg := gate.Config{
		Pool: w.Pool, Clock: w.Clock,
		Targets:       map[string]gate.Target{Care: w.Target},
		Sources:       map[string]gate.Source{Care: source.Care()},
		SubjectFields: map[string]string{Care: "client"},
	}
	for _, o := range options {
		o(&cfg)
	}
	g, err := gate.New(cfg)
	if err != nil {
		w.T.Fatal(err)
	}
	return g
}

// Visit is a request that creates a visit for the client C-1.
func (w *World) Visit(event, effect, run string) gate.Request {
	return gate.Request{
		Integration: Care,
		Event:       gate.EventRef{Account: "home", ID: event, OccurredAt: w.Clock.Now().Format(time.RFC3339)},
		Effect:      effect, Agent: "planner", Run: run,
		Mutation: gate.Mutation{
			Op: gate.OpCreate, Type: "visit", Subject: "C-1",
			Body: []byte(`{"client":"C-1","nurse":"N-1","start":"2025-10-29T08:00:00+01:00","effect":"` + effect + `"}`),
		},
	}
}

// Submit submits and fails the test on an error.
func (w *World) Submit(req gate.Request) gate.Decision {
	w.T.Helper()
	d, err := w.Gate.Submit(w.T.Context(), gate.Agent(req.Agent), req)
	if err != nil {
		w.T.Fatalf("submit %s %s: %v", req.Event.ID, req.Effect, err)
	}
	return d
}

// Visits counts the visits in the record system.
func (w *World) Visits() int { return len(w.System.Snapshot()) }

// SetMode switches the gate.
func (w *World) SetMode(mode gate.Mode) {
	w.T.Helper()
	i, err := w.Gate.Integration(w.T.Context(), Care)
	if err != nil {
		w.T.Fatal(err)
	}
	if err := w.Gate.SetMode(w.T.Context(), gate.Person("admin"), Care, mode, i.Version, "test"); err != nil {
		w.T.Fatal(err)
	}
}

// CheckInvariants fails the test unless what the gate promises holds in the
// database: no key with two open sends, no forwarded mutation without its
// reservation, and no row without its audit record.
func (w *World) CheckInvariants() {
	w.T.Helper()
	checks := map[string]string{
		"a reservation has no audit record of its reserving": `
			select count(*) from reservations r where not exists (
				select 1 from audit_records a where a.object = 'M-' || r.mutation_id and a.action = 'mutation.reserved')`,
		"a settled reservation has no audit record of it": `
			select count(*) from reservations r where r.state <> 'in_flight' and not exists (
				select 1 from audit_records a where a.object = 'M-' || r.mutation_id and a.action = 'mutation.' || r.state)`,
		"a decision has no audit record": `
			select count(*) from decisions d where d.enforced and d.kind = 'mutation' and not exists (
				select 1 from audit_records a where a.object = 'M-' || d.mutation_id and a.action in ('mutation.dropped', 'mutation.held'))`,
		"an item has no decision": `
			select count(*) from quarantine_items q where not exists (
				select 1 from decisions d where d.mutation_id = q.mutation_id or d.delivery_id = q.delivery_id)`,
		"a committed create is missing in the projection": `
			select count(*) from reservations r join mutations m on m.id = r.mutation_id
			where r.state = 'committed' and m.op = 'create' and not exists (
				select 1 from entities e where e.integration = r.integration and e.type = m.entity_type
				and e.id = coalesce(nullif(m.entity_id, ''), r.external_ref))`,
	}
	for what, sql := range checks {
		var n int
		if err := w.Pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
			w.T.Fatalf("%s: %v", what, err)
		}
		if n > 0 {
			w.T.Errorf("%s: %d rows", what, n)
		}
	}
}
