package gate

import (
	"context"
	"testing"
	"time"
)

// slowDatabase answers on a clock that the test moves: the request and the
// answer take as long as each other, and its first answer takes a connect.
type slowDatabase struct {
	elapsed *time.Duration
	trips   []time.Duration
	start   time.Time
}

func (d *slowDatabase) DatabaseTime(context.Context) (time.Time, error) {
	trip := d.trips[0]
	d.trips = d.trips[1:]
	*d.elapsed += trip / 2
	at := d.start.Add(*d.elapsed)
	*d.elapsed += trip - trip/2
	return at, nil
}

func TestTheDatabasesTimeIsCorrectedForHalfTheTrip(t *testing.T) {
	var elapsed time.Duration
	start := time.Date(2025, 10, 26, 0, 47, 0, 0, time.UTC)
	db := &slowDatabase{elapsed: &elapsed, start: start, trips: []time.Duration{
		3 * time.Second, 40 * time.Millisecond, 200 * time.Millisecond,
		90 * time.Millisecond, time.Second, 80 * time.Millisecond,
	}}
	c := &SystemClock{
		Wall:     func() time.Time { return start.Add(elapsed) },
		database: db,
		elapsed:  func() time.Duration { return elapsed },
		wallBase: start,
	}
	if err := c.anchor(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.Now(); !got.Equal(start.Add(elapsed)) {
		t.Errorf("now %v, want %v", got, start.Add(elapsed))
	}
	db.start = start.Add(time.Minute)
	reading, err := c.Compare(t.Context())
	want := ClockReading{DatabaseOffset: time.Minute, CheckedAt: start.Add(elapsed)}
	if err != nil || reading != want {
		t.Errorf("reading %+v, %v, want %+v", reading, err, want)
	}
}

func TestOfThreeReadingsTheShortestTripCounts(t *testing.T) {
	var elapsed time.Duration
	calls := 0
	c := &SystemClock{elapsed: func() time.Duration { return elapsed }}
	c.database = databaseFunc(func() time.Time {
		calls++
		// All of the trip is before the reading: its half is the error.
		trip := []time.Duration{time.Second, 10 * time.Millisecond, 100 * time.Millisecond}[calls-1]
		elapsed += trip
		return time.Time{}.Add(elapsed)
	})
	at, middle, err := c.sample(t.Context())
	if err != nil || calls != 3 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	if off := at.Sub(time.Time{}) - middle; off != 5*time.Millisecond {
		t.Errorf("off by %v", off)
	}
}

type databaseFunc func() time.Time

func (f databaseFunc) DatabaseTime(context.Context) (time.Time, error) { return f(), nil }
