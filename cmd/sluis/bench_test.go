package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/migrations"
	"sluis/migrations/pgserver"
	"sluis/snapshots"
	"sluis/snapshots/s3server/s3test"
	"sluis/web"
)

// benchWorld is an app over a durable Postgres of its own and a target that
// answers at once from memory, so that only our own cost shows.
type benchWorld struct {
	pool   *pgxpool.Pool
	target *memoryTarget
	clock  *gate.ManualClock
	app    *app
}

func newBenchWorld(b *testing.B) *benchWorld {
	b.Helper()
	root, err := os.MkdirTemp("", "sluis-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		b.Fatal(err)
	}
	pg, err := pgserver.Start(b.Context(), pgserver.Options{Dir: filepath.Join(root, "postgres"), Durable: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pg.Stop(context.Background()) })
	if err := pg.EnsureDatabase(b.Context(), databaseName); err != nil {
		b.Fatal(err)
	}
	w := &benchWorld{target: newMemoryTarget(), clock: gate.NewManualClock(time.Date(2025, 10, 27, 8, 0, 0, 0, time.UTC))}
	if w.pool, err = openPool(b.Context(), pg.DSN(databaseName)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.pool.Close)
	if err := migrations.Up(b.Context(), w.pool); err != nil {
		b.Fatal(err)
	}
	keys, _, err := snapshots.GenerateKeys("bench")
	if err != nil {
		b.Fatal(err)
	}
	w.app, err = newApp(parts{
		pool: w.pool, store: s3test.Store(b), keys: keys, clock: w.clock, log: discard,
		targets: map[string]gate.Target{care: w.target},
		timing:  timing{StaleAfter: 2 * time.Minute, SendTimeout: 15 * time.Second, ReconcileEvery: time.Minute},
	})
	if err != nil {
		b.Fatal(err)
	}
	err = w.app.gate.EnsureIntegration(b.Context(), gate.Job("bench"), gate.Integration{ID: care, Name: "Care", Mode: gate.ModeEnforce, MaxSkew: 5 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// memoryTarget is a record system in memory.
type memoryTarget struct {
	next     atomic.Int64
	entities []gate.Entity // sorted, for Live
}

func newMemoryTarget() *memoryTarget { return &memoryTarget{} }

func (m *memoryTarget) Apply(_ context.Context, s gate.Send) gate.Outcome {
	id := s.Mutation.ID
	if id == "" {
		id = fmt.Sprintf("V-%09d", m.next.Add(1))
	}
	return gate.Outcome{Class: gate.Applied, Ref: id, Status: http.StatusCreated,
		Entity: &gate.Entity{Type: s.Mutation.Type, ID: id, Version: 1, State: s.Mutation.Body}}
}

func (m *memoryTarget) LookUp(context.Context, gate.Key, time.Time) gate.LookUp {
	return gate.LookUp{Class: gate.NoAnswer}
}

func (m *memoryTarget) Read(context.Context, string, string) (gate.Entity, error) {
	return gate.Entity{}, gate.ErrNotFound
}

func (m *memoryTarget) Live(_ context.Context, after string, limit int) ([]gate.Entity, string, error) {
	from := 0
	if after != "" {
		var err error
		if from, err = strconv.Atoi(after); err != nil {
			return nil, "", err
		}
	}
	to := min(from+limit, len(m.entities))
	if to == len(m.entities) {
		return m.entities[from:to], "", nil
	}
	return m.entities[from:to], strconv.Itoa(to), nil
}

// durations are one series of measurements.
type durations []time.Duration

func (d durations) quantile(q float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// measure calls f n times and times each call.
func measure(b *testing.B, n int, f func(i int) error) durations {
	b.Helper()
	d := make(durations, 0, n)
	for i := range n {
		start := time.Now()
		if err := f(i); err != nil {
			b.Fatal(err)
		}
		d = append(d, time.Since(start))
	}
	return d
}

func report(b *testing.B, name string, d, reference durations) {
	b.Helper()
	p50, p99 := d.quantile(0.5), d.quantile(0.99)
	b.ReportMetric(float64(p50.Microseconds())/1000, name+"-p50-ms")
	b.ReportMetric(float64(p99.Microseconds())/1000, name+"-p99-ms")
	if reference != nil {
		b.ReportMetric(float64(p50)/float64(reference.quantile(0.5)), name+"-p50-ratio")
		b.ReportMetric(float64(p99)/float64(reference.quantile(0.99)), name+"-p99-ratio")
	}
}

// BenchmarkGate measures one caller: a decision that sends nothing (a replay:
// looked up, judged, recorded with its reason and audit record), and a full
// forward (reserved, sent to a target that answers at once, settled with
// projection and audit record), beside a bare single-row insert and commit on
// the same server in the same run.
func BenchmarkGate(b *testing.B) {
	w := newBenchWorld(b)
	if _, err := w.pool.Exec(b.Context(), `create table bare (key bytea primary key, at timestamptz not null)`); err != nil {
		b.Fatal(err)
	}
	request := func(i int) gate.Request {
		return gate.Request{
			Integration: care, Event: gate.EventRef{Account: "home", ID: fmt.Sprintf("evt-%d", i), OccurredAt: "2025-10-27T08:00:00Z"},
			Agent: "planner", Run: "run-1",
			Mutation: gate.Mutation{Op: gate.OpCreate, Type: "visit", Subject: fmt.Sprintf("C-%d", i%90),
				Body: []byte(fmt.Sprintf(`{"client":"C-%d","nurse":"N-1","start":"2025-10-29T08:00:00+01:00","stop":%d}`, i%90, i))},
		}
	}
	const n = 3000
	for b.Loop() {
		if _, err := w.pool.Exec(b.Context(), `truncate bare`); err != nil {
			b.Fatal(err)
		}
		var bare, forward, replay durations
		offset := int(time.Now().UnixNano() % 1e15)
		for round := range 10 { // in turns, so that a machine that slows down slows all three
			from := offset + round*n/10
			bare = append(bare, measure(b, n/10, func(i int) error {
				key := gate.DerivedKey("bare", strconv.Itoa(from+i))
				_, err := w.pool.Exec(b.Context(), `insert into bare (key, at) values ($1, $2)`, key[:], w.clock.Now())
				return err
			})...)
			forward = append(forward, measure(b, n/10, func(i int) error {
				_, err := w.app.gate.Submit(b.Context(), gate.Agent("planner"), request(from+i))
				return err
			})...)
			replay = append(replay, measure(b, n/10, func(i int) error {
				_, err := w.app.gate.Submit(b.Context(), gate.Agent("planner"), request(from+i))
				return err
			})...)
		}
		report(b, "bare", bare, nil)
		report(b, "decision", replay, bare)
		report(b, "forward", forward, bare)
	}
}

// fillHistory stores n committed mutations with their reservations, audit
// records and counters, spread over the days before now, in bulk.
func fillHistory(b *testing.B, w *benchWorld, n int) {
	b.Helper()
	statements := []string{
		`insert into mutations (integration, natural_key, account, event_id, effect, agent, run, op, entity_type, entity_id,
			subject, body, fingerprint, received_at, mode, decision, reason, forwarded)
		select 'care', sha256(convert_to('k' || i, 'utf8')), 'home', 'evt-' || i, '', 'planner', 'run-' || i, 'create', 'visit', 'V-' || i,
			'C-' || (i % 90), convert_to('{"n":' || i || '}', 'utf8'), sha256(convert_to('f' || i, 'utf8')),
			$2::timestamptz - (i % 43200) * interval '1 minute', 'enforce', case when i % 50 = 0 then 'drop' else 'forward' end,
			case when i % 50 = 0 then 'replay' else '' end, i % 50 <> 0
		from generate_series(1, $1::int) i`,
		`insert into reservations (key, integration, natural_key, mutation_id, state, attempt, fence, reserved_at, settled_at, settled_by, external_ref)
		select natural_key, integration, natural_key, id, 'committed', 1, 1, received_at, received_at, 'planner', entity_id
		from mutations where forwarded and $1::int > 0 and $2::timestamptz is not null`,
		`insert into decisions (integration, at, kind, mode, decision, reason, enforced, account, event_id, mutation_id)
		select integration, received_at, 'mutation', 'enforce', 'drop', 'replay', true, account, event_id, id
		from mutations where decision = 'drop' and $1::int > 0 and $2::timestamptz is not null`,
		`insert into counters (integration, bucket, name, shard, n)
		select 'care', date_bin('15 minutes', received_at, timestamptz '2020-01-01'), name, 0, count(*)
		from mutations, unnest(case when decision = 'drop' then array['drop', 'replay'] else array['forward'] end) name
		where $1::int > 0 and $2::timestamptz is not null group by 2, 3 on conflict do nothing`,
	}
	for _, sql := range statements {
		if _, err := w.pool.Exec(b.Context(), sql, n, w.clock.Now()); err != nil {
			b.Fatal(err)
		}
	}
	for _, table := range []string{"mutations", "reservations", "decisions", "counters"} {
		if _, err := w.pool.Exec(b.Context(), "vacuum analyze "+table); err != nil {
			b.Fatal(err)
		}
	}
	list, err := w.app.gate.Drops(b.Context(), care, 0, 1)
	if err != nil || len(list) == 0 {
		b.Fatalf("no drops: %v", err)
	}
	// The drops of the past were seen: what is left to count is what came since.
	if err := w.app.gate.Acknowledge(b.Context(), gate.Person("otto"), care, gate.SignalDrops, list[0].LastID, "seen"); err != nil {
		b.Fatal(err)
	}
}

// renderDashboard times the whole page through the console's server.
func renderDashboard(b *testing.B, n int) durations {
	b.Helper()
	w := newBenchWorld(b)
	fillHistory(b, w, n)
	if _, err := addUser(b.Context(), w.app, "anna", web.Planner, "a long enough password"); err != nil {
		b.Fatal(err)
	}
	operators, _, err := w.app.servers(web.NewHub())
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(operators)
	b.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	c := &consoleClient{base: server.URL, client: &http.Client{Jar: jar}}
	if _, err := c.post("/signin", url.Values{"name": {"anna"}, "password": {"a long enough password"}}); err != nil {
		b.Fatal(err)
	}
	render := func(int) error {
		doc, err := c.get("/")
		if err == nil && doc.Find("main table tbody tr").Length() < 7 {
			err = fmt.Errorf("not the dashboard: %s", doc.Find("title").Text())
		}
		return err
	}
	measure(b, 20, render)
	return measure(b, 200, render)
}

// BenchmarkDashboard renders the dashboard over 10 thousand and over 1 million
// stored mutations: the cost must not grow with history.
func BenchmarkDashboard(b *testing.B) {
	for b.Loop() {
		small := renderDashboard(b, 10_000)
		large := renderDashboard(b, 1_000_000)
		report(b, "10k", small, nil)
		report(b, "1M", large, small)
	}
}

// BenchmarkPlan plans a rollback over 100 thousand entities with 10 thousand
// mutations after the snapshot, half of them suspects.
func BenchmarkPlan(b *testing.B) {
	const entities, mutations = 100_000, 10_000
	w := newBenchWorld(b)
	for i := range entities {
		id := fmt.Sprintf("V-%09d", i)
		w.target.entities = append(w.target.entities, gate.Entity{Type: "visit", ID: id, Version: 1,
			State: []byte(fmt.Sprintf(`{"client":"C-%d","nurse":"N-%d","start":"2025-10-29T08:00:00+01:00"}`, i%5000, i%400))})
	}
	job := gate.Job("bench")
	if _, err := w.app.gate.Baseline(b.Context(), job, care); err != nil {
		b.Fatal(err)
	}
	snap, err := w.app.snapshots.Take(b.Context(), job, care)
	if err != nil {
		b.Fatal(err)
	}
	w.target.next.Store(entities)
	suspects := fillMutations(b, w, mutations)
	for b.Loop() {
		rb, err := w.app.snapshots.CreatePlan(b.Context(), gate.Person("anna"), snapshots.PlanRequest{
			Integration: care, SnapshotSeq: snap.Seq, Mutations: suspects, Note: "bench",
		})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		peak := watchHeap()
		start := time.Now()
		if err := w.app.snapshots.RunPlan(b.Context(), rb.ID); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "plan-s")
		b.ReportMetric(float64(peak())/(1<<20), "peak-heap-MiB")
		if rb, err = w.app.snapshots.Rollback(b.Context(), rb.ID); err != nil || rb.Summary.Compensations != len(suspects) {
			b.Fatalf("%+v %v", rb, err)
		}
	}
}

// fillMutations sends mutations through the gate, each intent twice, and
// returns the repeats as suspects.
func fillMutations(b *testing.B, w *benchWorld, n int) []snapshots.Suspect {
	b.Helper()
	var suspects []snapshots.Suspect
	for i := range n {
		d, err := w.app.gate.Submit(b.Context(), gate.Agent("planner"), gate.Request{
			Integration: care, Event: gate.EventRef{Account: "home", ID: fmt.Sprintf("evt-%d", i), OccurredAt: "2025-10-27T08:00:00Z"},
			Agent: "planner", Run: "run-1",
			Mutation: gate.Mutation{Op: gate.OpCreate, Type: "visit", Subject: fmt.Sprintf("C-%d", i%5000),
				Body: []byte(fmt.Sprintf(`{"client":"C-%d","nurse":"N-1","stop":%d}`, i%5000, i/2))},
		})
		if err != nil {
			b.Fatal(err)
		}
		w.target.entities = append(w.target.entities, gate.Entity{Type: "visit", ID: d.ExternalRef, Version: 1,
			State: []byte(fmt.Sprintf(`{"client":"C-%d","nurse":"N-1","stop":%d}`, i%5000, i/2))})
		if i%2 == 1 {
			suspects = append(suspects, snapshots.Suspect{Mutation: gate.MutationRecord{ID: d.MutationID}, Source: "selection"})
		}
	}
	return suspects
}

// watchHeap samples the heap until the returned function is called, which
// gives the highest size seen.
func watchHeap() func() uint64 {
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return peak.Load()
	}
}
