package gate_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/gate/gatetest"
)

// An unreachable Postgres: every command says so, in the caller's time, and
// nothing is sent.
func TestWithoutPostgresNothingIsSent(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	cfg, err := pgxpool.ParseConfig("host=" + filepath.Join(t.TempDir(), "nobody") + " user=x dbname=x")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	g := w.NewGate(func(c *gate.Config) { c.Pool = pool })
	by := gate.Agent("planner")
	ref := gate.EventRef{Account: "home", ID: "evt-1"}
	commands := map[string]func(context.Context) error{
		"submit": func(ctx context.Context) error {
			d, err := g.Submit(ctx, by, w.Visit("evt-1", "visit/1", "run-1"))
			if d.State != "" || d.MutationID != 0 {
				t.Errorf("submit claims %+v", d)
			}
			return err
		},
		"receive": func(ctx context.Context) error {
			r, err := g.Receive(ctx, by, gatetest.Care, []byte(`{"event_id":"evt-1","account":"home"}`))
			if r != (gate.Receipt{}) {
				t.Errorf("receive claims %+v", r)
			}
			return err
		},
		"a payload that cannot be read": func(ctx context.Context) error {
			_, err := g.Receive(ctx, by, gatetest.Care, []byte(`{`))
			return err
		},
		"close":     func(ctx context.Context) error { return g.CloseEvent(ctx, by, gatetest.Care, ref, "run-1") },
		"key":       func(ctx context.Context) error { _, err := g.KeyStatus(ctx, gatetest.Care, gate.Key{1}); return err },
		"events":    func(ctx context.Context) error { _, err := g.Events(ctx, gatetest.Care, 0, 1); return err },
		"reconcile": func(ctx context.Context) error { _, err := g.Reconcile(ctx, gatetest.Care); return err },
		"token":     func(ctx context.Context) error { _, _, err := g.ResolveToken(ctx, "slu_x"); return err },
		"by hand": func(ctx context.Context) error {
			return g.SettleByHand(ctx, gate.Person("anna"), 1, 1, true, "V-1", "seen")
		},
	}
	for name, command := range commands {
		if err := command(t.Context()); !errors.Is(err, gate.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if sends := w.System.Sends(); len(sends) != 0 || w.Visits() != 0 {
		t.Errorf("the record system saw %v and has %d visits", sends, w.Visits())
	}
}

// A pool without a free connection is a store that cannot be reached: the
// caller's deadline ends the wait.
func TestAnExhaustedPoolIsUnavailable(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	cfg := w.Pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	g := w.NewGate(func(c *gate.Config) { c.Pool = pool })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := g.Submit(ctx, gate.Agent("planner"), w.Visit("evt-1", "visit/1", "run-1")); !errors.Is(err, gate.ErrUnavailable) {
		t.Errorf("submit: %v", err)
	}
	if w.Visits() != 0 {
		t.Errorf("%d visits", w.Visits())
	}
}
