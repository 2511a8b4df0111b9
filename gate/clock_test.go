package gate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"sluis/gate"
	"sluis/migrations/testdb"
)

// slack is how far two readings of real clocks may lie apart in these tests;
// the steps they look for are minutes.
const slack = 5 * time.Second

// serverClock is a database's clock that is ahead of this machine's.
type serverClock struct {
	mu    sync.Mutex
	ahead time.Duration
	err   error
}

func (c *serverClock) DatabaseTime(context.Context) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return time.Time{}, c.err
	}
	return time.Now().Add(c.ahead), nil
}

func systemClock(t *testing.T, db gate.DatabaseClock) *gate.SystemClock {
	t.Helper()
	clock, err := gate.NewSystemClock(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return clock
}

func near(got, want time.Duration) bool { return (got - want).Abs() < slack }

func TestSystemClockIsAnchoredToTheDatabase(t *testing.T) {
	clock := systemClock(t, &serverClock{ahead: time.Hour})
	now := clock.Now()
	if ahead := time.Until(now); !near(ahead, time.Hour) || now.Location() != time.UTC {
		t.Errorf("now %v, %v ahead of this machine", now, ahead)
	}
	if later := clock.Now(); later.Before(now) {
		t.Errorf("went back from %v to %v", now, later)
	}
}

func TestSystemClockReadings(t *testing.T) {
	for _, test := range []struct {
		name             string
		wall, ahead      time.Duration
		wantWall, wantDB time.Duration
	}{
		{"nothing", 0, 0, 0, 0},
		{"NTP step forward", 7 * time.Minute, 0, 7 * time.Minute, 0},
		{"NTP step back", -time.Hour, 0, -time.Hour, 0},
		{"drift past the limit", 0, 6 * time.Minute, 0, 6 * time.Minute},
		{"the database's clock steps back", 0, -6 * time.Minute, 0, -6 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := &serverClock{}
			clock := systemClock(t, db)
			before := clock.Now()
			clock.Wall = func() time.Time { return time.Now().Add(test.wall) }
			db.ahead = test.ahead
			reading, err := clock.Compare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !near(reading.WallStep, test.wantWall) || !near(reading.DatabaseOffset, test.wantDB) {
				t.Errorf("reading %+v", reading)
			}
			after := clock.Now()
			if moved := after.Sub(before); moved < 0 || moved > slack {
				t.Errorf("the clock moved by %v", moved)
			}
			if reading.CheckedAt.Before(before) || reading.CheckedAt.After(after) {
				t.Errorf("checked at %v, between %v and %v", reading.CheckedAt, before, after)
			}
		})
	}
}

func TestSystemClockNeedsItsDatabase(t *testing.T) {
	down := errors.New("connection refused")
	if clock, err := gate.NewSystemClock(t.Context(), &serverClock{err: down}); !errors.Is(err, down) || clock != nil {
		t.Errorf("clock %v, error %v", clock, err)
	}
	db := &serverClock{}
	clock := systemClock(t, db)
	db.err = down
	if reading, err := clock.Compare(t.Context()); !errors.Is(err, down) || reading != (gate.ClockReading{}) {
		t.Errorf("reading %+v, error %v", reading, err)
	}
	if clock.Now().IsZero() {
		t.Error("the clock stopped with its database")
	}
}

func TestPoolTimeReadsTheServersClock(t *testing.T) {
	db := gate.PoolTime{Pool: testdb.Pool(t)}
	at, err := db.DatabaseTime(t.Context())
	if err != nil || !near(time.Until(at), 0) || at.Location() != time.UTC {
		t.Errorf("%v, %v", at, err)
	}
	reading, err := systemClock(t, db).Compare(t.Context())
	if err != nil || reading.DatabaseOffset.Abs() > time.Second {
		t.Errorf("%+v, %v", reading, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.DatabaseTime(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestManualClockNeverGoesBack(t *testing.T) {
	start := time.Date(2025, 10, 26, 2, 47, 0, 0, time.FixedZone("CEST", 7200))
	clock := gate.NewManualClock(start)
	steps := []struct {
		name string
		do   func()
		want time.Duration
	}{
		{"start", func() {}, 0},
		{"advance", func() { clock.Advance(time.Minute) }, time.Minute},
		{"advance back", func() { clock.Advance(-time.Hour) }, time.Minute},
		{"set forward", func() { clock.Set(start.Add(26 * time.Minute)) }, 26 * time.Minute},
		{"set back", func() { clock.Set(start) }, 26 * time.Minute},
	}
	for _, step := range steps {
		step.do()
		if got := clock.Now(); got.Sub(start) != step.want || got.Location() != time.UTC {
			t.Errorf("%s: %v, want %v after the start", step.name, got, step.want)
		}
	}
	var zero gate.ManualClock
	zero.Set(start)
	if !zero.Now().Equal(start) {
		t.Errorf("the zero clock set to %v", zero.Now())
	}
}
