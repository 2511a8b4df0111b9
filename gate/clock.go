package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// DatabaseClock tells the database server's time, to which the gate's clock is
// anchored: every replica decides by the same time.
type DatabaseClock interface {
	DatabaseTime(ctx context.Context) (time.Time, error)
}

// PoolTime reads the server's time over a pool.
type PoolTime struct{ Pool *pgxpool.Pool }

// DatabaseTime is the server's time at the moment of the statement. This is
// the one statement that reads a clock.
func (p PoolTime) DatabaseTime(ctx context.Context) (time.Time, error) {
	var at time.Time
	if err := p.Pool.QueryRow(ctx, "select clock_timestamp()").Scan(&at); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return at.UTC(), nil
}

// ClockReading compares the three clocks at one moment. Neither figure changes
// what Now returns; both are signals for a person.
type ClockReading struct {
	// WallStep is how far this machine's wall clock has moved against the
	// monotonic one since start: the sum of its steps, positive when forward.
	WallStep time.Duration
	// DatabaseOffset is the database's time minus Now. It is about zero at
	// start; it grows with drift, with a step of the database's clock, and
	// when this machine slept.
	DatabaseOffset time.Duration
	// CheckedAt is Now at the comparison.
	CheckedAt time.Time
}

// SystemClock is the clock of a running gate: the database's time at start,
// carried on by this machine's monotonic clock. A step of the wall clock, such
// as NTP makes, does not move it, forward or back (incident 1). It is safe for
// concurrent use.
type SystemClock struct {
	// Wall reads the wall clock; replace it, before the first Compare, to
	// test steps.
	Wall func() time.Time

	database DatabaseClock
	elapsed  func() time.Duration // monotonic, since the anchor
	base     time.Time            // the database's time at the anchor
	wallBase time.Time            // the wall clock at the anchor
}

// NewSystemClock anchors a clock to the database's. Without the database there
// is no clock: the error is the database's.
func NewSystemClock(ctx context.Context, db DatabaseClock) (*SystemClock, error) {
	anchor := time.Now()
	c := &SystemClock{
		Wall:     time.Now,
		database: db,
		elapsed:  func() time.Duration { return time.Since(anchor) },
		wallBase: anchor.Round(0),
	}
	if err := c.anchor(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// anchor takes the database's time at elapsed zero.
func (c *SystemClock) anchor(ctx context.Context) error {
	at, middle, err := c.sample(ctx)
	if err != nil {
		return fmt.Errorf("anchor the clock: %w", err)
	}
	c.base = at.Add(-middle)
	return nil
}

// Now is UTC, monotonic since start.
func (c *SystemClock) Now() time.Time { return c.base.Add(c.elapsed()).UTC() }

// Compare reads all three clocks.
func (c *SystemClock) Compare(ctx context.Context) (ClockReading, error) {
	at, middle, err := c.sample(ctx)
	if err != nil {
		return ClockReading{}, fmt.Errorf("compare the clocks: %w", err)
	}
	elapsed := c.elapsed()
	return ClockReading{
		WallStep:       c.Wall().Round(0).Sub(c.wallBase) - elapsed,
		DatabaseOffset: at.Sub(c.base.Add(middle)),
		CheckedAt:      c.base.Add(elapsed).UTC(),
	}, nil
}

// sample reads the database's time and the middle of that round trip on the
// monotonic clock. Of three readings the one with the shortest trip counts:
// its error is at most half the trip, and the first may include a connect.
func (c *SystemClock) sample(ctx context.Context) (at time.Time, middle time.Duration, err error) {
	shortest := time.Duration(-1)
	for range 3 {
		before := c.elapsed()
		reading, err := c.database.DatabaseTime(ctx)
		if err != nil {
			return time.Time{}, 0, err
		}
		trip := c.elapsed() - before
		if shortest < 0 || trip < shortest {
			shortest, at, middle = trip, reading, before+trip/2
		}
	}
	return at.Round(0), middle, nil
}

// ManualClock is moved by hand, to play a recorded trace in its own time. It
// is safe for concurrent use and never goes back. The zero value stands at
// the zero time.
type ManualClock struct {
	mu  sync.Mutex
	now time.Time
}

// NewManualClock starts a clock at t.
func NewManualClock(t time.Time) *ManualClock { return &ManualClock{now: t.UTC()} }

// Now is the time last set.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set moves the clock to t; a t that is earlier than Now changes nothing.
func (c *ManualClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t.UTC()
	}
}

// Advance moves the clock forward by d; a negative d changes nothing.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d > 0 {
		c.now = c.now.Add(d)
	}
}
