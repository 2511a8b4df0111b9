package main

import (
	"context"
	"time"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/gate/sandbox/trace"
	"sluis/snapshots"
)

// played is what playing a trace led to.
type played struct {
	trace.Result
	Board trace.Figures
	Scan  int // hash pairs found by the nightly scans
	Taken int // snapshots
}

// scanHour and scanMinute are when the nightly hash-pair scan runs, in the
// organisation's zone.
const (
	scanHour   = 3
	scanMinute = 15
)

// play plays a trace through a gate on the recorded clock, over the same
// stores as the world's own app: deliveries into the inbox, the agent's
// mutations through admission, a snapshot at every quarter, the hash-pair scan
// at night.
func (w *world) play(ctx context.Context, tr *trace.Trace, mode gate.Mode, say *progress) (played, error) {
	var out played
	integration := w.integration
	clock := gate.NewManualClock(tr.Meta.From)
	w.clock.recorded.Store(clock)
	defer w.clock.recorded.Store(nil)
	p := w.app.parts
	p.clock = clock
	recorded, err := newApp(p)
	if err != nil {
		return out, err
	}
	if err := w.prepare(ctx, recorded.gate, tr, mode); err != nil {
		return out, err
	}
	say.line("playing %s in mode %s: %d steps", tr.Meta.Name, mode, len(tr.Steps))
	agent := gate.Agent("planning-agent")
	out.Result, err = trace.Play(ctx, tr, trace.Player{
		Deliver: func(ctx context.Context, raw []byte) (gate.Receipt, error) {
			return recorded.gate.Receive(ctx, gate.Agent("roster"), integration, raw)
		},
		Submit: func(ctx context.Context, req gate.Request) (gate.Decision, error) {
			req.Integration = integration
			return recorded.gate.Submit(ctx, agent, req)
		},
		Target: w.target, Clock: clock, Edit: trace.EditOver(w.recordsURL, "", w.target), Agent: agent.Name,
		Tick:     func(ctx context.Context, at time.Time) error { return w.tick(ctx, recorded, at, &out) },
		Progress: say.step,
	})
	if err != nil {
		return out, err
	}
	if _, err := audit.Link(ctx, p.pool); err != nil {
		return out, err
	}
	out.Board = trace.Board(w.system.Snapshot(), tr.Meta.Board)
	return out, nil
}

// prepare fills the record system, makes the integration, and adopts the
// record system's state as the gate's baseline.
func (w *world) prepare(ctx context.Context, g *gate.Gate, tr *trace.Trace, mode gate.Mode) error {
	if err := w.system.Seed(tr.Seed()); err != nil {
		return err
	}
	job := gate.Job("replay")
	err := g.EnsureIntegration(ctx, job, gate.Integration{ID: w.integration, Name: "Care planning", Mode: mode, MaxSkew: 5 * time.Minute})
	if err != nil {
		return err
	}
	_, err = g.Baseline(ctx, job, w.integration)
	return err
}

// tick is a quarter of an hour on the recorded clock.
func (w *world) tick(ctx context.Context, a *app, at time.Time, out *played) error {
	if _, ok := w.app.store.(noStore); !ok {
		if _, err := a.snapshots.Take(ctx, gate.Job("snapshot"), w.integration); err != nil {
			return err
		}
		out.Taken++
	}
	local := at.In(amsterdam)
	if local.Hour() != scanHour || local.Minute() != scanMinute {
		return nil
	}
	found, err := a.gate.ScanPairs(ctx, gate.Job("pair-scan"), w.integration)
	out.Scan += found.Found
	return err
}

// noStore stands in where a replay takes no snapshots.
type noStore struct{ snapshots.Store }
