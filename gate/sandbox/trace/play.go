package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluis/gate"
)

// tickEvery is the snapshots' rhythm.
const tickEvery = 15 * time.Minute

// Player is what a trace is played through. Deliver, Submit, Target and Clock
// are needed; Edit only where the trace has edits.
type Player struct {
	Deliver func(ctx context.Context, raw []byte) (gate.Receipt, error)
	Submit  Submit
	Target  gate.Target
	Edit    func(context.Context, Edit) error
	Clock   *gate.ManualClock
	// WallStep tells of a step of the wall clock; nil ignores it.
	WallStep func(d time.Duration)
	// Tick comes at each quarter of an hour of the recorded clock, before the
	// steps at that instant or later; nil ignores it.
	Tick func(ctx context.Context, at time.Time) error
	// Progress comes after each step; nil ignores it.
	Progress func(done, total int, at time.Time)
	// RunPrefix begins the agent's run ids; "" means "run-".
	RunPrefix string
	// Agent is the name under which the agent acts; "" means "roster-agent".
	Agent string
}

// EventOutcome is one delivery and what came of it.
type EventOutcome struct {
	Line     int // of the trace
	At       time.Time
	Receipt  gate.Receipt
	EventID  string // of a delivery that the agent was handed
	Kind     string
	Run      string
	Forward  int
	Drop     int
	Held     int // quarantined
	Expected *Expect
}

// Met reports whether the receipt is what the trace expects of enforce mode.
func (o EventOutcome) Met() bool {
	return o.Expected == nil || o.Expected.Disposition == o.Receipt.Disposition && o.Expected.Reason == o.Receipt.Reason
}

// Result is what came of a whole trace.
type Result struct {
	Deliveries int
	HandedOn   int
	Edits      int
	Ticks      int
	// Decisions counts the agent's mutations by verdict, with "/reason" after
	// it where there is one: "forward", "drop/replay".
	Decisions map[string]int
	Sends     int // mutations that were forwarded
	Events    []EventOutcome
}

// Unmet are the deliveries whose receipt is not what the trace expects.
func (r Result) Unmet() []EventOutcome {
	var out []EventOutcome
	for _, o := range r.Events {
		if !o.Met() {
			out = append(out, o)
		}
	}
	return out
}

// Play plays the trace at its recorded clock: it sets the clock to each step's
// instant, and hands a delivery to the simulated agent only when the receipt
// says that it may act on it. The caller has put [Trace.Seed] into the record
// system. It stops at the first error, which names the line.
func Play(ctx context.Context, tr *Trace, p Player) (Result, error) {
	if p.Deliver == nil || p.Submit == nil || p.Target == nil || p.Clock == nil {
		return Result{}, errors.New("play: deliver, submit, target and clock are needed")
	}
	run := &playing{
		p: p, next: tr.Meta.From.Truncate(tickEvery),
		result: Result{Decisions: map[string]int{}},
		agent: Agent{Name: or(p.Agent, "roster-agent"), Integration: tr.Meta.Integration,
			RunPrefix: or(p.RunPrefix, "run-"), Target: p.Target, Submit: p.Submit},
	}
	if run.next.Before(tr.Meta.From) {
		run.next = run.next.Add(tickEvery)
	}
	for i, s := range tr.Steps {
		err := run.ticks(ctx, s.At)
		if err == nil {
			p.Clock.Set(s.At)
			err = run.step(ctx, s)
		}
		if err != nil {
			return run.result, fmt.Errorf("play: line %d: %w", s.Line, err)
		}
		if p.Progress != nil {
			p.Progress(i+1, len(tr.Steps), s.At)
		}
	}
	if err := run.ticks(ctx, tr.Meta.To); err != nil {
		return run.result, fmt.Errorf("play: at the end: %w", err)
	}
	p.Clock.Set(tr.Meta.To)
	return run.result, nil
}

// playing is a trace that is being played.
type playing struct {
	p      Player
	agent  Agent
	next   time.Time // of the quarter's tick
	result Result
}

// ticks lets every quarter up to and including the instant strike.
func (r *playing) ticks(ctx context.Context, upTo time.Time) error {
	for ; !r.next.After(upTo); r.next = r.next.Add(tickEvery) {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.p.Clock.Set(r.next)
		r.result.Ticks++
		if r.p.Tick == nil {
			continue
		}
		if err := r.p.Tick(ctx, r.next); err != nil {
			return fmt.Errorf("tick at %s: %w", r.next.Format(time.RFC3339), err)
		}
	}
	return ctx.Err()
}

func (r *playing) step(ctx context.Context, s Step) error {
	switch s.Kind {
	case KindRoster:
		r.agent.Learn(*s.Roster)
	case KindDeliver:
		return r.deliver(ctx, s)
	case KindEdit:
		if r.p.Edit == nil {
			return errors.New("the trace has an edit and the player cannot make one")
		}
		r.result.Edits++
		return r.p.Edit(ctx, *s.Edit)
	case KindClock:
		if r.p.WallStep != nil {
			r.p.WallStep(time.Duration(s.WallStepMS) * time.Millisecond)
		}
	}
	return nil
}

func (r *playing) deliver(ctx context.Context, s Step) error {
	receipt, err := r.p.Deliver(ctx, []byte(*s.Raw))
	if err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	r.result.Deliveries++
	o := EventOutcome{Line: s.Line, At: s.At, Receipt: receipt, Expected: s.Expect}
	if receipt.HandOn {
		r.result.HandedOn++
		h, err := r.agent.Handle(ctx, []byte(*s.Raw))
		if err != nil {
			return err
		}
		o.EventID, o.Kind, o.Run = h.EventID, h.Kind, h.Run
		r.count(&o, h.Decisions)
	}
	r.result.Events = append(r.result.Events, o)
	return nil
}

func (r *playing) count(o *EventOutcome, decisions []gate.Decision) {
	for _, d := range decisions {
		name := string(d.Verdict)
		if d.Reason != "" {
			name += "/" + string(d.Reason)
		}
		r.result.Decisions[name]++
		switch d.Verdict {
		case gate.Forward:
			o.Forward++
			r.result.Sends++
		case gate.Drop:
			o.Drop++
		case gate.Quarantine:
			o.Held++
		}
	}
}

func or(v, def string) string {
	if v == "" {
		return def
	}
	return v
}
