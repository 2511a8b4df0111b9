package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/gate/sandbox"
	"sluis/gate/target"
	"sluis/handlers"
	"sluis/migrations"
	"sluis/migrations/pgserver"
	"sluis/web"
)

// outage is an agents' server over a Postgres that the test stops and starts.
type outage struct {
	dir    string
	pg     *pgserver.Server
	pool   *pgxpool.Pool
	system *sandbox.System
	api    *httptest.Server
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{dir: dataRoot(t)}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o.start(t)
	t.Cleanup(func() { o.stop(t) })
	if err := o.pg.EnsureDatabase(t.Context(), databaseName); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.pool, err = openPool(t.Context(), o.pg.DSN(databaseName)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.pool.Close)
	if err := migrations.Up(t.Context(), o.pool); err != nil {
		t.Fatal(err)
	}
	if o.system, err = sandbox.Open(t.TempDir(), sandbox.Options{Clock: time.Now}); err != nil {
		t.Fatal(err)
	}
	records := httptest.NewServer(o.system.Handler())
	t.Cleanup(records.Close)
	o.serve(t, records.URL)
	return o
}

// serve starts the agents' API over the gate.
func (o *outage) serve(t *testing.T, records string) {
	t.Helper()
	to, err := target.New(target.Config{BaseURL: records})
	if err != nil {
		t.Fatal(err)
	}
	clock, err := gate.NewSystemClock(t.Context(), gate.PoolTime{Pool: o.pool})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Config{Pool: o.pool, Clock: clock, Targets: map[string]gate.Target{care: to},
		StaleAfter: 2 * time.Second, SendTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = g.EnsureIntegration(t.Context(), gate.Job("test"), gate.Integration{ID: care, Name: "Care", Mode: gate.ModeEnforce, MaxSkew: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{parts: parts{pool: o.pool, clock: clock}, gate: g}
	server, err := web.NewAgents(web.Config{
		Log: discard, Now: time.Now,
		Principal: func(context.Context, string) (web.Principal, error) {
			return web.Principal{Agent: "planning-agent", Integration: care}, nil
		},
	}, handlers.Agents(a.gate))
	if err != nil {
		t.Fatal(err)
	}
	o.api = httptest.NewServer(server)
	t.Cleanup(o.api.Close)
}

func (o *outage) start(t *testing.T) {
	t.Helper()
	pg, err := pgserver.Start(t.Context(), pgserver.Options{Dir: filepath.Join(o.dir, "postgres"), Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	o.pg = pg
}

func (o *outage) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	if err := o.pg.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestPostgresStopsUnderLoad stops and starts Postgres while agents send:
// meanwhile they are answered 503, nothing reaches the record system without
// its row, and the service resumes by itself.
func TestPostgresStopsUnderLoad(t *testing.T) {
	o := newOutage(t)
	var (
		wg                    sync.WaitGroup
		ok, unavailable, next atomic.Int64
		done                  = make(chan struct{})
	)
	for range 16 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				status, answer, err := call(http.MethodPost, o.api.URL+mutationsPath, "t", mutation(fmt.Sprintf("evt-%d", next.Add(1))))
				switch {
				case err != nil:
					t.Error(err)
				case status == http.StatusOK:
					ok.Add(1)
				case status == http.StatusServiceUnavailable && answer["new_key_is_safe"] == false:
					unavailable.Add(1)
				default:
					t.Errorf("answered %d %v", status, answer)
				}
			}
		})
	}
	eventually(t, "mutations are applied", 30*time.Second, func() bool { return ok.Load() > 50 })
	o.stop(t)
	eventually(t, "agents are told 503", 30*time.Second, func() bool { return unavailable.Load() > 50 })
	during := ok.Load()
	o.start(t)
	eventually(t, "the service has resumed", time.Minute, func() bool { return ok.Load() > during+50 })
	close(done)
	wg.Wait()
	checkNothingWithoutRow(t, o)
}

// checkNothingWithoutRow compares what the record system was sent with the
// reservations.
func checkNothingWithoutRow(t *testing.T, o *outage) {
	t.Helper()
	var keys []string
	rows, err := o.pool.Query(t.Context(), `select encode(key, 'hex') from reservations`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	known := map[string]bool{}
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			t.Fatal(err)
		}
		known[key] = true
	}
	for key, n := range o.system.Sends() {
		if !known[key] {
			keys = append(keys, key)
		}
		if n > 1 {
			t.Errorf("key %s was sent %d times", key, n)
		}
	}
	if len(keys) > 0 {
		t.Errorf("%d keys reached the record system without a row: %v", len(keys), keys)
	}
	if len(known) == 0 {
		t.Error("there is no reservation at all")
	}
}
