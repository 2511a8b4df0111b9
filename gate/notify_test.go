package gate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/gate/gatetest"
)

// background runs f until the test ends, when it has to return nil.
func background(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("it does not end")
		}
	})
}

// heard waits for a topic, touching it again until it arrives: the listener
// may not listen yet.
func heard(t *testing.T, topics <-chan string, want string, touch func()) {
	t.Helper()
	again, timeout := time.NewTicker(100*time.Millisecond), time.After(20*time.Second)
	defer again.Stop()
	for {
		select {
		case got := <-topics:
			if got == want {
				return
			}
		case <-again.C:
			touch()
		case <-timeout:
			t.Fatalf("%q was never heard", want)
		}
	}
}

func TestEveryProcessHearsOfAChange(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	topics := make(chan string, 1000)
	other := w.NewGate()
	background(t, func(ctx context.Context) error {
		return other.Listen(ctx, func(integration, topic string) { topics <- integration + " " + topic })
	})
	background(t, w.Gate.RunNotifier)
	heard(t, topics, "care rollback:7", func() { w.Gate.Touch("care", "rollback:7") })
	it := held(t, w, "evt-1")
	heard(t, topics, "care items", func() {})
	release(t, w, it)
	heard(t, topics, "care items", func() {})
}

func TestTouchesAreThrottled(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	topics := make(chan string, 1000)
	background(t, func(ctx context.Context) error {
		return w.Gate.Listen(ctx, func(_, topic string) { topics <- topic })
	})
	background(t, w.Gate.RunNotifier)
	heard(t, topics, "ready", func() { w.Gate.Touch("care", "ready") })
	for range 10_000 {
		w.Gate.Touch("care", "signals")
	}
	w.Gate.Touch("care", "last")
	n := 0
	heard(t, func() <-chan string {
		counted := make(chan string, 1000)
		go func() {
			for topic := range topics {
				if topic == "signals" {
					n++
				}
				counted <- topic
				if topic == "last" {
					return
				}
			}
		}()
		return counted
	}(), "last", func() {})
	if n > 2 {
		t.Errorf("10,000 touches at once were told %d times", n)
	}
}

func TestAListenerThatLostItsConnectionIsToldEverything(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	topics := make(chan string, 1000)
	background(t, func(ctx context.Context) error {
		return w.Gate.Listen(ctx, func(integration, topic string) { topics <- integration + "/" + topic })
	})
	background(t, w.Gate.RunNotifier)
	touch := func() { w.Gate.Touch("care", "signals") }
	heard(t, topics, "care/signals", touch)
	var ended int
	err := w.Pool.QueryRow(t.Context(), `
		select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and query = 'listen sluis'`).Scan(&ended)
	if err != nil || ended != 1 {
		t.Fatalf("ended %d listening connections (%v)", ended, err)
	}
	heard(t, topics, "/*", func() {})
	heard(t, topics, "care/signals", touch)
}

func TestTheLinkerChainsWhatIsRecorded(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	w.Submit(w.Visit("evt-1", "", "run-1"))
	background(t, w.Gate.RunLinker)
	deadline, again := time.After(20*time.Second), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		var open int
		if err := w.Pool.QueryRow(t.Context(), `
			select count(*) from audit_records r where not exists (select 1 from audit_links l where l.record_id = r.id)`).Scan(&open); err != nil {
			t.Fatal(err)
		}
		if open == 0 {
			break
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%d records have no link", open)
		}
	}
	if _, err := audit.Link(t.Context(), w.Pool); errors.Is(err, context.Canceled) || err != nil {
		t.Error(err)
	}
}
