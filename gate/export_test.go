package gate

import "context"

// SweepReleases is the work of the sweep's job.
func (g *Gate) SweepReleases(ctx context.Context) error { return g.sweepReleases(ctx) }
