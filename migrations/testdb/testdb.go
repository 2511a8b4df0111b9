// Package testdb gives each test a PostgreSQL database of its own, already
// migrated.
//
// One private cluster serves the tests of one test binary. It starts with the
// first database asked for and ends, with its data, in Main or Run, which a
// package's TestMain has to call:
//
//	func TestMain(m *testing.M) { testdb.Main(m) }
//
// Where PostgreSQL's programs are missing a test is skipped, and fails when the
// environment says CI=true. The cluster is not durable: a test that crashes the
// server or measures a commit starts one of its own with package pgserver.
package testdb

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/migrations/pgserver"
)

// Runner is what runs the tests: *testing.M, or another package's wrapping of it.
type Runner interface{ Run() int }

// Main runs the tests and ends the process: the whole of a TestMain.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests, stops the cluster and returns the exit code, for a
// TestMain that has more to do.
func Run(m Runner) int {
	current.mu.Lock()
	current.open = true
	current.mu.Unlock()
	defer current.stop()
	return m.Run()
}

// Wrap is Run as a Runner, to hand to another package's Run.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ inner Runner }

func (w wrapped) Run() int { return Run(w.inner) }

// Pool is a pool on a fresh, migrated database, closed and dropped when the test ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), DSN(t))
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// DSN is the connection string of a fresh, migrated database, dropped when the
// test ends whoever is still connected.
func DSN(t testing.TB) string {
	t.Helper()
	return fresh(t, func(ctx context.Context, s *source) (string, error) { return s.take(ctx) })
}

// EmptyDSN is the connection string of a fresh database without any tables.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return fresh(t, func(ctx context.Context, s *source) (string, error) { return s.create(ctx, "template0") })
}

func fresh(t testing.TB, take func(context.Context, *source) (string, error)) string {
	t.Helper()
	s, err := current.source()
	if errors.Is(err, pgserver.ErrNoBinaries) && os.Getenv("CI") != "true" {
		t.Skipf("needs PostgreSQL: %v", err)
	}
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name, err := take(ctx, s)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	return s.server.DSN(name)
}

// process is the one cluster of this test binary.
type process struct {
	mu   sync.Mutex
	open bool // between the start and the end of Run
	src  *source
	err  error
}

var current process

func (p *process) source() (*source, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.open:
		return nil, errors.New("TestMain does not call testdb.Main or testdb.Run")
	case p.src == nil && p.err == nil:
		p.src, p.err = newSource()
	}
	return p.src, p.err
}

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
	if p.src != nil {
		p.src.close()
	}
}
