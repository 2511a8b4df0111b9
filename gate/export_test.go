package gate

import (
	"context"
	"time"
)

// SweepReleases is the work of the sweep's job.
func (g *Gate) SweepReleases(ctx context.Context) error { return g.sweepReleases(ctx) }

// NewTestClock is a system clock over monotonic, wall and database clocks that
// the test moves.
func NewTestClock(ctx context.Context, db DatabaseClock, elapsed func() time.Duration, wall func() time.Time) (*SystemClock, error) {
	c := &SystemClock{Wall: wall, database: db, elapsed: elapsed, wallBase: wall()}
	return c, c.anchor(ctx)
}
