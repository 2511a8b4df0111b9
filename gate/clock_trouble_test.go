package gate_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox/trace"
)

// recordedDatabase tells the time of the recorded clock.
type recordedDatabase struct{ clock *gate.ManualClock }

func (d recordedDatabase) DatabaseTime(context.Context) (time.Time, error) { return d.clock.Now(), nil }

// troubled is the clock-trouble trace as a gate on a system clock saw it.
type troubled struct {
	receipts  []gate.Receipt
	decisions map[string]int
	steps     []time.Duration // what the clock's comparison told after each step
}

// playTrouble plays the trace through a gate whose clock is a system clock
// with the recorded time as its monotonic clock; wall steps are made or not.
func playTrouble(t *testing.T, mode gate.Mode, stepping bool) troubled {
	t.Helper()
	tr := trace.ClockTrouble()
	w := gatetest.NewAt(t, mode, tr.Meta.From)
	if err := w.System.Seed(tr.Seed()); err != nil {
		t.Fatal(err)
	}
	var stepped time.Duration
	clock, err := gate.NewTestClock(t.Context(), recordedDatabase{w.Clock},
		func() time.Duration { return w.Clock.Now().Sub(tr.Meta.From) },
		func() time.Time { return w.Clock.Now().Add(stepped) })
	if err != nil {
		t.Fatal(err)
	}
	g := w.NewGate(func(c *gate.Config) { c.Clock = clock })
	var seen troubled
	player := trace.Player{
		Clock: w.Clock, Target: w.Target,
		Deliver: func(ctx context.Context, raw []byte) (gate.Receipt, error) {
			return g.Receive(ctx, gate.Agent("provider"), gatetest.Care, raw)
		},
		Submit: func(ctx context.Context, r gate.Request) (gate.Decision, error) {
			return g.Submit(ctx, gate.Agent(r.Agent), r)
		},
		WallStep: func(d time.Duration) {
			if stepping {
				stepped += d
			}
			reading, err := clock.Compare(t.Context())
			if err != nil || reading.DatabaseOffset != 0 {
				t.Errorf("%+v, %v", reading, err)
			}
			seen.steps = append(seen.steps, reading.WallStep)
		},
	}
	result, err := trace.Play(t.Context(), tr, player)
	if err != nil {
		t.Fatal(err)
	}
	if mode == gate.ModeEnforce {
		for _, o := range result.Unmet() {
			t.Errorf("line %d: %s %q, want %+v", o.Line, o.Receipt.Disposition, o.Receipt.Reason, *o.Expected)
		}
	}
	for _, o := range result.Events {
		seen.receipts = append(seen.receipts, o.Receipt)
	}
	seen.decisions = result.Decisions
	w.CheckInvariants()
	return seen
}

// The clock-trouble trace through the real gate: every delivery is judged as
// the trace expects, and the steps that NTP makes of the wall clock show as a
// signal and change no decision (incident 1).
func TestClockTrouble(t *testing.T) {
	stepped := playTrouble(t, gate.ModeEnforce, true)
	if diff := cmp.Diff([]time.Duration{time.Hour, -time.Hour, 0}, stepped.steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	even := playTrouble(t, gate.ModeEnforce, false)
	if len(even.receipts) < 20 {
		t.Fatalf("only %d deliveries", len(even.receipts))
	}
	if diff := cmp.Diff(even.receipts, stepped.receipts); diff != "" {
		t.Errorf("receipts without and with steps (-without +with):\n%s", diff)
	}
	if diff := cmp.Diff(even.decisions, stepped.decisions); diff != "" {
		t.Errorf("decisions without and with steps (-without +with):\n%s", diff)
	}
}

// In shadow the same is decided and recorded, and everything is handed on.
func TestClockTroubleInShadow(t *testing.T) {
	enforced, shadow := playTrouble(t, gate.ModeEnforce, true), playTrouble(t, gate.ModeShadow, true)
	if len(enforced.receipts) != len(shadow.receipts) {
		t.Fatalf("%d and %d deliveries", len(enforced.receipts), len(shadow.receipts))
	}
	for i, r := range shadow.receipts {
		if want := enforced.receipts[i]; r.Disposition != want.Disposition || r.Reason != want.Reason || !r.HandOn || r.Item != 0 {
			t.Errorf("delivery %d: %+v in shadow, %+v in enforce", i, r, want)
		}
	}
}
