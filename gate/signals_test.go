package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

// row is what a test says about a signal.
type row struct {
	Level gate.Level
	Why   string
	Count int64
}

func signal(t testing.TB, w *gatetest.World, id string) gate.Signal {
	t.Helper()
	list, err := w.Gate.Signals(t.Context(), gatetest.Care)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no signal %q in %+v", id, list)
	return gate.Signal{}
}

func wantSignal(t testing.TB, w *gatetest.World, id string, want row) gate.Signal {
	t.Helper()
	s := signal(t, w, id)
	if diff := cmp.Diff(want, row{s.Level, s.Why, s.Count}); diff != "" {
		t.Errorf("signal %s (-want +got):\n%s", id, diff)
	}
	return s
}

func TestDropsAreRedUntilAcknowledged(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	wantSignal(t, w, gate.SignalDrops, row{gate.LevelOK, "none", 0})
	for i := range 3 {
		w.Submit(w.Visit("evt-1", fmt.Sprintf("visit/%d", i), "run-1"))
	}
	repeated := w.Clock.Now()
	for range 2 {
		for i := range 3 {
			w.Submit(w.Visit("evt-1", fmt.Sprintf("visit/%d", i), "run-2"))
		}
		w.Clock.Advance(time.Minute)
	}
	s := wantSignal(t, w, gate.SignalDrops, row{gate.LevelAct, "above_zero", 1})
	if s.WhyArgs["mutations"] != int64(6) || !s.Since.Equal(repeated) {
		t.Errorf("signal %+v", s)
	}
	groups, err := w.Gate.Drops(t.Context(), gatetest.Care, 0, 0)
	if err != nil || len(groups) != 1 || groups[0].Mutations != 6 || groups[0].LastID != s.UpTo || groups[0].Acknowledged || !groups[0].FirstSeen.Equal(gatetest.Start) {
		t.Errorf("groups %+v, %v", groups, err)
	}
	if err := w.Gate.Acknowledge(t.Context(), anna, gatetest.Care, gate.SignalDrops, s.UpTo, "the provider fired twice"); err != nil {
		t.Fatal(err)
	}
	if s = wantSignal(t, w, gate.SignalDrops, row{gate.LevelOK, "acknowledged", 0}); s.AckedBy != "anna" {
		t.Errorf("signal %+v", s)
	}
	var decided *gate.DecidedError
	if err := w.Gate.Acknowledge(t.Context(), bert, gatetest.Care, gate.SignalDrops, groups[0].LastID, ""); !errors.As(err, &decided) || decided.By != "anna" {
		t.Errorf("acknowledged twice: %v", err)
	}
	w.Submit(w.Visit("evt-1", "visit/0", "run-3"))
	wantSignal(t, w, gate.SignalDrops, row{gate.LevelAct, "above_zero", 1})
	w.CheckInvariants()
}

func TestAcknowledgeRefuses(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	for name, a := range map[string]struct {
		signal string
		upto   int64
	}{"another signal": {gate.SignalQuarantine, 1}, "drops that have not come": {gate.SignalDrops, 1}, "nothing": {gate.SignalDrops, 0}} {
		if err := w.Gate.Acknowledge(t.Context(), anna, gatetest.Care, a.signal, a.upto, ""); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDropsInTheOtherModes(t *testing.T) {
	w := gatetest.New(t, gate.ModeShadow)
	w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	w.Submit(w.Visit("evt-1", "visit/1", "run-2"))
	wantSignal(t, w, gate.SignalDrops, row{gate.LevelCheck, "shadow", 1})
	for i := range 98 {
		w.Submit(w.Visit(fmt.Sprintf("more-%d", i), "", "run-1"))
	}
	if s := wantSignal(t, w, gate.SignalReplay, row{gate.LevelOK, "in_band", 1}); s.Ratio != 0.01 {
		t.Errorf("ratio %v", s.Ratio)
	}
	off := gatetest.New(t, gate.ModeOff)
	wantSignal(t, off, gate.SignalDrops, row{gate.LevelNoData, "off", 0})
	wantSignal(t, off, gate.SignalReplay, row{gate.LevelNoData, "off", 0})
}

func TestDropsByPage(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	for _, run := range []string{"run-1", "run-2", "run-3"} {
		for i := range 3 {
			w.Submit(w.Visit(fmt.Sprintf("evt-%d", i), "visit/1", run))
		}
	}
	var events []string
	before := int64(0)
	for range 4 {
		groups, err := w.Gate.Drops(t.Context(), gatetest.Care, before, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range groups {
			events, before = append(events, d.EventID), d.LastID
			if d.Mutations != 2 || d.Deliveries != 0 || d.Reason != gate.ReasonReplay || !d.Enforced {
				t.Errorf("group %+v", d)
			}
		}
	}
	if diff := cmp.Diff([]string{"evt-2", "evt-1", "evt-0"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestQuarantineSignal(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	wantSignal(t, w, gate.SignalQuarantine, row{gate.LevelOK, "none", 0})
	it := held(t, w, "evt-1")
	w.Clock.Advance(4 * time.Hour)
	if s := wantSignal(t, w, gate.SignalQuarantine, row{gate.LevelCheck, "open", 1}); !s.Since.Equal(it.OpenedAt) || s.Age != 4*time.Hour {
		t.Errorf("signal %+v", s)
	}
	w.Clock.Advance(time.Second)
	if s := wantSignal(t, w, gate.SignalQuarantine, row{gate.LevelAct, "waiting", 1}); !s.Since.Equal(it.OpenedAt.Add(4 * time.Hour)) {
		t.Errorf("signal %+v", s)
	}
}

func TestInFlightSignal(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	wantSignal(t, w, gate.SignalInFlight, row{gate.LevelOK, "none", 0})
	d := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	steps := []struct {
		state string
		age   time.Duration
		want  row
	}{
		{"in_flight", time.Minute, row{gate.LevelOK, "moving", 1}},
		{"in_flight", 2*time.Minute + time.Second, row{gate.LevelCheck, "stale", 1}},
		{"in_flight", 10*time.Minute + time.Second, row{gate.LevelAct, "stuck", 1}},
		{"unknown", time.Minute, row{gate.LevelAct, "uncertain", 1}},
		{"manual", time.Minute, row{gate.LevelAct, "uncertain", 1}},
	}
	for _, tt := range steps {
		_, err := w.Pool.Exec(t.Context(), `update reservations set state = $1, reserved_at = $2, settled_at = null, settled_by = null`, tt.state, w.Clock.Now().Add(-tt.age))
		if err != nil {
			t.Fatal(err)
		}
		s := wantSignal(t, w, gate.SignalInFlight, tt.want)
		if s.Age != tt.age {
			t.Errorf("%s for %s: age %s", tt.state, tt.age, s.Age)
		}
		if names := s.WhyArgs["names"]; tt.want.Why == "uncertain" && names != fmt.Sprintf("M-%d", d.MutationID) {
			t.Errorf("the row is called %q", names)
		}
		open, err := w.Gate.OpenReservations(t.Context(), gatetest.Care, 0)
		if err != nil || len(open) != 1 || open[0].ID != d.MutationID {
			t.Errorf("open rows %+v, %v", open, err)
		}
	}
}

func TestPairsSignal(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	wantSignal(t, w, gate.SignalPairs, row{gate.LevelNoData, "never_scanned", 0})
	w.Submit(w.Visit("evt-1", "a", "r"))
	scan(t, w.Gate)
	wantSignal(t, w, gate.SignalPairs, row{gate.LevelOK, "none", 0})
	w.Clock.Advance(26*time.Hour + time.Second)
	wantSignal(t, w, gate.SignalPairs, row{gate.LevelNoData, "scan_late", 0})
	w.Submit(w.Visit("evt-2", "a", "r"))
	scan(t, w.Gate)
	wantSignal(t, w, gate.SignalPairs, row{gate.LevelAct, "open", 1})
	p := allPairs(t, w)[0]
	if _, err := w.Gate.JudgePair(t.Context(), anna, p.ID, p.Version, gate.PairDistinct, "meant"); err != nil {
		t.Fatal(err)
	}
	wantSignal(t, w, gate.SignalPairs, row{gate.LevelOK, "none", 0})
}

func TestReplaySignal(t *testing.T) {
	tests := []struct {
		forwards, replays int64
		want              row
	}{
		{99, 0, row{gate.LevelNoData, "too_few", 0}},
		{100, 0, row{gate.LevelCheck, "below_band", 0}},
		{990, 10, row{gate.LevelOK, "in_band", 10}},
		{970, 30, row{gate.LevelOK, "in_band", 30}},
		{969, 31, row{gate.LevelCheck, "above_band", 31}},
		{801, 199, row{gate.LevelCheck, "above_band", 199}},
		{800, 200, row{gate.LevelAct, "misbehaving", 200}},
	}
	w := gatetest.New(t, gate.ModeEnforce)
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d and %d", tt.forwards, tt.replays), func(t *testing.T) {
			old := w.Clock.Now().Add(-24*time.Hour - 15*time.Minute)
			_, err := w.Pool.Exec(t.Context(), `
				with gone as (delete from counters)
				insert into counters (integration, bucket, name, shard, n)
				values ($1, $2, 'forward', 0, $4), ($1, $2, 'drop', 1, $5), ($1, $2, 'replay', 1, $5), ($1, $3, 'replay', 0, 5000)`,
				gatetest.Care, w.Clock.Now().Truncate(15*time.Minute).Add(-15*time.Minute), old, tt.forwards, tt.replays)
			if err != nil {
				t.Fatal(err)
			}
			wantSignal(t, w, gate.SignalReplay, tt.want)
			if _, err := w.Pool.Exec(t.Context(), `delete from counters`); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestReplaysAreCounted(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	for i := range 80 {
		w.Submit(w.Visit(fmt.Sprintf("evt-%d", i), "", "run-1"))
	}
	for i := range 20 {
		w.Submit(w.Visit(fmt.Sprintf("evt-%d", i), "", "run-2"))
	}
	if s := wantSignal(t, w, gate.SignalReplay, row{gate.LevelAct, "misbehaving", 20}); s.Ratio != 0.2 {
		t.Errorf("ratio %v", s.Ratio)
	}
}

// comparedClock is a clock that says how far it is off.
type comparedClock struct {
	gate.Clock
	reading gate.ClockReading
	err     error
}

func (c *comparedClock) Compare(context.Context) (gate.ClockReading, error) { return c.reading, c.err }

func TestClockSignal(t *testing.T) {
	c := &comparedClock{}
	w := gatetest.New(t, gate.ModeEnforce)
	wantSignal(t, w, gate.SignalClock, row{gate.LevelNoData, "recorded", 0})
	c.Clock = w.Clock
	w.Gate = w.NewGate(func(cfg *gate.Config) { cfg.Clock = c })
	tests := []struct {
		offset, step time.Duration
		err          error
		want         row
	}{
		{2 * time.Second, -2 * time.Second, nil, row{gate.LevelOK, "in_step", 0}},
		{-2001 * time.Millisecond, 0, nil, row{gate.LevelCheck, "slight_offset", 0}},
		{time.Second, time.Minute, nil, row{gate.LevelCheck, "slight_step", 0}},
		{time.Second, -time.Minute - 1, nil, row{gate.LevelAct, "far_step", 0}},
		{time.Hour, 0, nil, row{gate.LevelAct, "far_offset", 0}},
		{0, 0, errors.New("no answer"), row{gate.LevelNoData, "unreadable", 0}},
	}
	for _, tt := range tests {
		c.reading, c.err = gate.ClockReading{DatabaseOffset: tt.offset, WallStep: tt.step}, tt.err
		wantSignal(t, w, gate.SignalClock, tt.want)
	}
}

func TestSignalsAreNeverGreenWithoutAFigure(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	w.Pool.Close()
	list, err := w.Gate.Signals(t.Context(), gatetest.Care)
	if err != nil || len(list) != 6 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, s := range list {
		if s.Level != gate.LevelNoData || s.Why != "unreadable" || s.CheckedAt.IsZero() {
			t.Errorf("without a store: %+v", s)
		}
	}
}

func TestSignalsOfAnUnknownIntegration(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	if _, err := w.Gate.Signals(t.Context(), "nowhere"); !errors.Is(err, gate.ErrNotFound) {
		t.Error(err)
	}
}

func TestAnUncertainOutcomeIsNamed(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.CutAfter, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	wantSignal(t, w, gate.SignalInFlight, row{gate.LevelAct, "uncertain", 1})
}
