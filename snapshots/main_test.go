package snapshots

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/migrations/testdb"
	"sluis/snapshots/s3server/s3test"
)

func TestMain(m *testing.M) { os.Exit(s3test.Run(testdb.Wrap(m))) }

// start is when tests begin on the gate's clock.
var start = time.Date(2025, 10, 25, 20, 0, 0, 0, time.UTC)

// deskGate stands for the gate where only its lists matter; whatever else is
// asked of it panics.
type deskGate struct {
	Gate
	mu      sync.Mutex
	ids     []string
	pairs   []gate.Pair
	touched []string
}

func (g *deskGate) Integrations(context.Context) ([]gate.Integration, error) {
	var list []gate.Integration
	for _, id := range g.ids {
		list = append(list, gate.Integration{ID: id, UpdatedAt: start})
	}
	return list, nil
}

func (g *deskGate) Integration(_ context.Context, id string) (gate.Integration, error) {
	if !slices.Contains(g.ids, id) {
		return gate.Integration{}, gate.ErrNotFound
	}
	return gate.Integration{ID: id, UpdatedAt: start}, nil
}

func (g *deskGate) Pairs(_ context.Context, f gate.PairFilter) ([]gate.Pair, error) {
	return slices.DeleteFunc(slices.Clone(g.pairs), func(p gate.Pair) bool {
		return p.Integration != f.Integration || !slices.Contains(f.States, p.State)
	}), nil
}

func (g *deskGate) Touch(integration, topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.touched = append(g.touched, integration+" "+topic)
}

// sealing is a Service on its own database and bucket.
type sealing struct {
	*Service
	t     testing.TB
	db    *pgxpool.Pool
	desk  *deskGate
	clock *gate.ManualClock
	cfg   Config
}

func newSealing(t testing.TB) *sealing {
	t.Helper()
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	f := &sealing{t: t, db: testdb.Pool(t), desk: &deskGate{ids: []string{"care"}}, clock: gate.NewManualClock(start)}
	f.cfg = Config{
		Pool: f.db, Gate: f.desk, Store: s3test.Store(t), Keys: keys, Clock: f.clock, RealNow: time.Now, Retention: time.Hour,
	}
	f.exec(`insert into integrations (id, name, mode, max_skew, created_at, updated_at, updated_by)
		values ('care', 'Care', 'off', '5 min', $1, $1, 'test')`, start)
	f.reload()
	return f
}

// reload is a restart: a new Service on the same database and store.
func (f *sealing) reload() {
	f.t.Helper()
	s, err := New(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Service = s
}

func (f *sealing) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.db.Exec(context.Background(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

// put sets an entity of the projection.
func (f *sealing) put(typ, id, state string, mutation int64) {
	f.t.Helper()
	f.exec(`insert into entities (integration, type, id, version, state, subject, last_mutation, updated_at)
		values ('care', $1, $2, 1, $3, 'client ' || $2, nullif($4, 0), $5)
		on conflict (integration, type, id) do update set version = entities.version + 1, state = excluded.state,
			last_mutation = excluded.last_mutation, deleted = false`, typ, id, []byte(state), mutation, start)
}

// reserve adds a forwarded mutation in the given reservation state.
func (f *sealing) reserve(state gate.State) int64 {
	f.t.Helper()
	var id int64
	err := pgx.BeginFunc(context.Background(), f.db, func(tx pgx.Tx) (err error) {
		id, err = insertReserved(tx, state)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func insertReserved(tx pgx.Tx, state gate.State) (id int64, err error) {
	ctx := context.Background()
	fp := sha256.Sum256([]byte("body"))
	err = tx.QueryRow(ctx, `
		insert into mutations (integration, account, event_id, effect, agent, run, op, entity_type, subject, body,
			fingerprint, received_at, mode, decision, forwarded)
		values ('care', 'a', 'e', '', 'agent', 'run', 'create', 'visit', 'C-1', '{}', $1, $2, 'off', 'forward', true)
		returning id`, fp[:], start).Scan(&id)
	if err != nil {
		return 0, err
	}
	key := sha256.Sum256(fmt.Append(nil, "key", id))
	var at, by any
	if state == gate.Committed || state == gate.StRefused || state == gate.RolledBack {
		at, by = start, "agent"
	}
	_, err = tx.Exec(ctx, `
		insert into reservations (key, integration, natural_key, mutation_id, state, attempt, fence, reserved_at, settled_at, settled_by)
		values ($1, 'care', $1, $2, $3, 1, 1, $4, $5, $6)`, key[:], id, state, start, at, by)
	return id, err
}

// settle moves a reservation to committed.
func (f *sealing) settle(id int64) {
	f.t.Helper()
	f.exec(`update reservations set state = 'committed', settled_at = $2, settled_by = 'agent' where mutation_id = $1`, id, start)
}

func (f *sealing) take() Snapshot {
	f.t.Helper()
	snap, err := f.Take(context.Background(), gate.Job("snapshot"), "care")
	if err != nil {
		f.t.Fatal(err)
	}
	return snap
}

func (f *sealing) sound() {
	f.t.Helper()
	if err := f.CheckInvariants(context.Background(), "care"); err != nil {
		f.t.Errorf("invariants: %v", err)
	}
}

var _ Gate = (*gate.Gate)(nil)
