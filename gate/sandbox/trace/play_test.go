package trace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/sandbox/trace"
)

// empty is a record system without anything in it.
type empty struct{ gate.Target }

func (empty) Live(context.Context, string, int) ([]gate.Entity, string, error) { return nil, "", nil }

// intakeTrace is one intake with three mutations, delivered on the stroke of a
// quarter.
func intakeTrace(t *testing.T) *trace.Trace {
	t.Helper()
	tr, err := trace.Read(strings.NewReader(
		`{"step":"meta","at":"2025-10-26T08:00:00Z","meta":{"name":"n","integration":"care","zone":"UTC","from":"2025-10-26T08:00:00Z","to":"2025-10-26T08:30:00Z"}}
{"step":"deliver","at":"2025-10-26T08:15:00Z","raw":"{\"event_id\":\"e1\",\"account\":\"m\",\"kind\":\"client.intake\",\"occurred_at\":\"2025-10-26T08:15:00Z\",\"data\":{\"client\":\"C-1\",\"state\":{},\"visits\":[{\"day\":\"2025-10-30\"},{\"day\":\"2025-10-31\"}]}}","expect":{"disposition":"stored"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestPlayKeepsTheOrderOfTime(t *testing.T) {
	var got []string
	clock := &gate.ManualClock{}
	said := func(what string) { got = append(got, clock.Now().Format("15:04")+" "+what) }
	verdicts := []gate.Decision{
		{Verdict: gate.Drop, Reason: gate.ReasonReplay}, {Verdict: gate.Quarantine, Reason: gate.ReasonOtherRun}, {Verdict: gate.Forward},
	}
	result, err := trace.Play(t.Context(), intakeTrace(t), trace.Player{
		Clock: clock, Target: empty{},
		Deliver: func(context.Context, []byte) (gate.Receipt, error) {
			said("deliver")
			return gate.Receipt{Disposition: gate.Stored, HandOn: true}, nil
		},
		Submit: func(_ context.Context, r gate.Request) (gate.Decision, error) {
			said(fmt.Sprintf("%s %s %v", r.Run, r.Effect, r.Last))
			d := verdicts[0]
			verdicts = verdicts[1:]
			return d, nil
		},
		Tick:     func(context.Context, time.Time) error { said("tick"); return nil },
		Progress: func(done, total int, _ time.Time) { said(fmt.Sprintf("%d of %d", done, total)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"08:00 tick", "08:15 tick", "08:15 deliver", "08:15 run-0001 client false",
		"08:15 run-0001 visit/2025-10-30 false", "08:15 run-0001 visit/2025-10-31 true", "08:15 1 of 1", "08:30 tick",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"drop/replay": 1, "quarantine/other_run": 1, "forward": 1}, result.Decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if o := result.Events[0]; o.Drop != 1 || o.Held != 1 || o.Forward != 1 || o.Run != "run-0001" || !o.Met() {
		t.Errorf("outcome %+v", o)
	}
}

func TestPlayStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	deliver := func(context.Context, []byte) (gate.Receipt, error) { return gate.Receipt{HandOn: true}, nil }
	submit := func(context.Context, gate.Request) (gate.Decision, error) { return gate.Decision{}, nil }
	for name, tc := range map[string]struct {
		alter func(*trace.Player)
		want  string
	}{
		"deliver": {func(p *trace.Player) {
			p.Deliver = func(context.Context, []byte) (gate.Receipt, error) { return gate.Receipt{}, broken }
		}, "play: line 2: deliver: broken"},
		"submit": {func(p *trace.Player) {
			p.Submit = func(context.Context, gate.Request) (gate.Decision, error) { return gate.Decision{}, broken }
		}, "play: line 2: agent: e1 client: broken"},
		"tick": {func(p *trace.Player) {
			p.Tick = func(context.Context, time.Time) error { return broken }
		}, "play: line 2: tick at 2025-10-26T08:00:00Z: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			p := trace.Player{Deliver: deliver, Submit: submit, Target: empty{}, Clock: &gate.ManualClock{}}
			tc.alter(&p)
			_, err := trace.Play(t.Context(), intakeTrace(t), p)
			if !errors.Is(err, broken) || err.Error() != tc.want {
				t.Errorf("error %q, want %q", err, tc.want)
			}
		})
	}
	if _, err := trace.Play(t.Context(), intakeTrace(t), trace.Player{}); err == nil {
		t.Error("a player without anything plays")
	}
}
