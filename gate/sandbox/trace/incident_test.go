package trace_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/sandbox"
	"sluis/gate/sandbox/trace"
	"sluis/gate/source"
	"sluis/gate/target"
)

const (
	traces = "testdata"
	board  = "2025-10-29"
)

var seeded = time.Date(2025, 10, 25, 20, 0, 0, 0, time.UTC)

// fakeGate stands in for a gate: it forwards everything, and with enforce on
// it drops a delivery whose event it has seen.
type fakeGate struct {
	enforce bool
	target  gate.Target
	seen    map[gate.EventRef]bool
	sent    []sent
	walls   []time.Duration
	ticks   []time.Time
}

// sent is a mutation that was applied, and the entity that it made or changed.
type sent struct {
	gate.Request
	ref string
}

func (g *fakeGate) deliver(_ context.Context, raw []byte) (gate.Receipt, error) {
	ref, _ := source.Care().Identify(raw)
	if g.enforce && g.seen[ref] {
		return gate.Receipt{Disposition: gate.Duplicate, Reason: gate.ReasonReplay}, nil
	}
	g.seen[ref] = true
	return gate.Receipt{Disposition: gate.Stored, HandOn: true}, nil
}

func (g *fakeGate) submit(ctx context.Context, r gate.Request) (gate.Decision, error) {
	canonical, err := gate.Canonical(r.Mutation.Body, 1<<20)
	if err != nil || !bytes.Equal(canonical, r.Mutation.Body) {
		return gate.Decision{}, fmt.Errorf("body %s is not canonical: %w", r.Mutation.Body, err)
	}
	key := gate.Key(sha256.Sum256(fmt.Append(nil, len(g.sent))))
	out := g.target.Apply(ctx, gate.Send{Key: key, Mutation: r.Mutation, Actor: "agent/" + r.Agent})
	if out.Class != gate.Applied {
		return gate.Decision{}, fmt.Errorf("%s %s: %s", r.Mutation.Op, r.Effect, out.Detail)
	}
	g.sent = append(g.sent, sent{r, out.Ref})
	return gate.Decision{Verdict: gate.Forward, State: gate.Committed, ExternalRef: out.Ref}, nil
}

// played is a trace that was played, and what the record system then held.
type played struct {
	*fakeGate
	world  []gate.Entity
	result trace.Result
}

// incident keeps the two ways of playing the incident, which takes a second
// each, for all tests.
var incident struct{ off, enforce played }

func off(t *testing.T) played     { return once(t, &incident.off, false) }
func enforce(t *testing.T) played { return once(t, &incident.enforce, true) }

func once(t *testing.T, p *played, enforce bool) played {
	t.Helper()
	if p.fakeGate == nil {
		*p = play(t, trace.CareIncident(), enforce)
	}
	return *p
}

// play plays a trace against a fresh sandbox.
func play(t *testing.T, tr *trace.Trace, enforce bool) played {
	t.Helper()
	clock := gate.NewManualClock(tr.Meta.From)
	sys, err := sandbox.Open(t.TempDir(), sandbox.Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sys.Handler())
	t.Cleanup(func() { srv.Close(); _ = sys.Close() })
	tgt, err := target.New(target.Config{BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Seed(tr.Seed()); err != nil {
		t.Fatal(err)
	}
	g := &fakeGate{enforce: enforce, target: tgt, seen: map[gate.EventRef]bool{}}
	result, err := trace.Play(t.Context(), tr, trace.Player{
		Deliver: g.deliver, Submit: g.submit, Target: tgt, Clock: clock,
		Edit:     trace.EditOver(srv.URL, "", tgt),
		WallStep: func(d time.Duration) { g.walls = append(g.walls, d) },
		Tick: func(_ context.Context, at time.Time) error {
			if !clock.Now().Equal(at) {
				t.Errorf("tick at %s with the clock at %s", at, clock.Now())
			}
			g.ticks = append(g.ticks, at)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := sys.DoubleApplied(); len(d) > 0 {
		t.Errorf("double applied: %v", d)
	}
	return played{g, sys.Snapshot(), result}
}

// pairs are the indices of equal mutations.
func (g *fakeGate) pairs() (out [][]int) {
	byContent := map[[32]byte][]int{}
	for i, s := range g.sent {
		fp := gate.Fingerprint(s.Mutation)
		byContent[fp] = append(byContent[fp], i)
	}
	for _, same := range byContent {
		if len(same) > 1 {
			out = append(out, same)
		}
	}
	return out
}

func TestOffDoublesTheBoard(t *testing.T) {
	g := off(t)
	want := trace.Figures{Visits: 624, MaxBeforeNoon: 12, Nurse: "Greet Hoekstra"}
	if got := trace.Board(g.world, board); got != want {
		t.Errorf("board %+v, want %+v", got, want)
	}
	if r := g.result; r.HandedOn != r.Deliveries || r.Decisions["forward"] != r.Sends {
		t.Errorf("result %+v", r)
	}
	touched := map[string]int{}
	for _, s := range g.sent {
		if s.Mutation.Op != gate.OpCreate {
			touched[s.ref]++
		}
	}
	pairs, first, second := g.pairs(), 0, 0
	for _, p := range pairs {
		if len(p) != 2 {
			t.Fatalf("%d equal mutations: %+v", len(p), g.sent[p[0]].Mutation)
		}
		a, b := touched[g.sent[p[0]].ref] > 0, touched[g.sent[p[1]].ref] > 0
		if a && b {
			t.Errorf("both copies of %s are touched", g.sent[p[0]].Effect)
		}
		first, second = first+count(a), second+count(b)
		if g.sent[p[0]].Event != g.sent[p[1]].Event || g.sent[p[0]].Run == g.sent[p[1]].Run {
			t.Errorf("the pair %v is not one event in two runs", p)
		}
	}
	if len(pairs) != 312 || first != 19 || second != 5 {
		t.Errorf("%d pairs, first copy touched %d, second %d; want 312, 19, 5", len(pairs), first, second)
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A planner's own edit must not be on the copy that a rollback takes away.
func TestEditsAreOnCopiesThatStay(t *testing.T) {
	g := off(t)
	copyOf, byAgent := map[string][2]string{}, map[string]bool{}
	for _, p := range g.pairs() {
		pair := [2]string{g.sent[p[0]].ref, g.sent[p[1]].ref}
		copyOf[pair[0]], copyOf[pair[1]] = pair, pair
	}
	for _, s := range g.sent {
		byAgent[s.ref] = byAgent[s.ref] || s.Mutation.Op == gate.OpUpdate
	}
	edits := 0
	for _, e := range g.world {
		if strings.HasPrefix(e.UpdatedBy, "agent/") || e.UpdatedAt.Before(seeded) {
			continue
		}
		edits++
		pair, doubled := copyOf[e.ID]
		if doubled && (e.ID != pair[0] || byAgent[pair[1]]) {
			t.Errorf("the edit of %s is on the copy that goes", e.ID)
		}
	}
	if edits != 5 {
		t.Errorf("%d edits, want 5", edits)
	}
}

func TestEnforceKeepsTheBoard(t *testing.T) {
	g := enforce(t)
	got := trace.Board(g.world, board)
	if got.Visits != 312 || got.MaxBeforeNoon != 8 {
		t.Errorf("board %+v, want 312 visits and 8 before noon", got)
	}
	if p := g.pairs(); len(p) != 0 {
		t.Errorf("%d legitimate mutations are equal: %+v", len(p), g.sent[p[0][0]].Mutation)
	}
	if u, r := g.result.Unmet(), g.result; len(u) > 0 || r.HandedOn != r.Deliveries-1 {
		t.Errorf("unmet %+v; %d of %d handed on", u, r.HandedOn, r.Deliveries)
	}
	nurses := map[string]int{}
	for _, s := range g.sent[:312] {
		var v trace.Visit
		if err := json.Unmarshal(s.Mutation.Body, &v); err != nil {
			t.Fatal(err)
		}
		nurses[v.Nurse]++
		if last := s.Effect == "visit/R-24/13"; s.Last != last || v.Day != board {
			t.Errorf("effect %s: last %v, day %s", s.Effect, s.Last, v.Day)
		}
	}
	for nurse, n := range nurses {
		if n != 13 {
			t.Errorf("%s has %d visits, want 13", nurse, n)
		}
	}
	if len(nurses) != 24 {
		t.Errorf("%d nurses, want 24", len(nurses))
	}
}

func TestMondayHasEighteenEvents(t *testing.T) {
	events, intakes, ids := 0, 0, map[string]bool{}
	for _, o := range enforce(t).result.Events {
		if ids[o.EventID] {
			t.Errorf("event id %s comes twice", o.EventID)
		}
		ids[o.EventID] = true
		if o.At.Day() != 27 || o.Forward == 0 {
			continue
		}
		events++
		intakes += count(o.Kind == "client.intake")
		if h := o.At.Hour() + 1; h < 7 || h >= 17 {
			t.Errorf("%s at %s is outside 07:00 to 17:00", o.EventID, o.At)
		}
	}
	if events != 18 || intakes != 1 {
		t.Errorf("%d events with %d intakes, want 18 with 1", events, intakes)
	}
}

func TestEventsOccurJustBeforeTheyArrive(t *testing.T) {
	for _, s := range trace.CareIncident().Steps {
		if s.Raw == nil || s.Expect != nil {
			continue
		}
		ref, kind := source.Care().Identify([]byte(*s.Raw))
		at, err := gate.ParseTimestamp(ref.OccurredAt)
		if late := s.At.Sub(at); err != nil || late < 0 || late > 10*time.Second {
			t.Errorf("line %d (%s): occurred %s before arrival, %v", s.Line, kind, late, err)
		}
	}
}

func TestTheRepeatIsByteIdentical(t *testing.T) {
	var twice []trace.Step
	for _, s := range trace.CareIncident().Steps {
		if s.Raw != nil && strings.Contains(*s.Raw, "evt-20251026-004700") {
			twice = append(twice, s)
		}
	}
	if len(twice) != 2 || *twice[0].Raw != *twice[1].Raw || twice[1].At.Sub(twice[0].At) != 26*time.Minute {
		t.Errorf("%+v", twice)
	}
	if got := twice[1].At.Format(time.RFC3339); got != "2025-10-26T01:13:02Z" {
		t.Errorf("again at %s", got)
	}
}

func TestPlayingIsDeterministic(t *testing.T) {
	first, again := off(t), play(t, trace.CareIncident(), false)
	if diff := cmp.Diff(first.result, again.result); diff != "" {
		t.Errorf("results differ:\n%s", diff)
	}
	if diff := cmp.Diff(first.world, again.world); diff != "" {
		t.Errorf("record systems differ:\n%s", diff)
	}
	if n := len(first.ticks); n != 327 || !first.ticks[0].Equal(seeded) || len(again.ticks) != n {
		t.Errorf("%d ticks from %s", n, first.ticks[0])
	}
}

func TestClockTroubleIsPlayed(t *testing.T) {
	g := play(t, trace.ClockTrouble(), true)
	if diff := cmp.Diff([]time.Duration{time.Hour, -2 * time.Hour, time.Hour}, g.walls); diff != "" {
		t.Errorf("wall steps (-want +got):\n%s", diff)
	}
	// The fake judges no times: each trouble is seen to be unmet.
	want := map[gate.Reason]int{
		gate.ReasonSkew: 3, gate.ReasonMissingEventID: 1, gate.ReasonMalformedTimestamp: 5, gate.ReasonNoOffset: 1,
		gate.ReasonLeapSecond: 1, gate.ReasonUnsupportedTimestamp: 3,
	}
	got := map[gate.Reason]int{}
	for _, o := range g.result.Unmet() {
		got[o.Expected.Reason]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unmet (-want +got):\n%s", diff)
	}
}

// The gate's own grammar and limit agree with what the trace expects.
func TestClockTroubleExpectations(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range trace.ClockTrouble().Steps {
		if s.Raw == nil {
			continue
		}
		ref, _ := source.Care().Identify([]byte(*s.Raw))
		at, err := gate.ParseTimestamp(ref.OccurredAt)
		var bad *gate.TimestampError
		want := trace.Expect{Disposition: gate.Stored}
		switch {
		case ref.ID == "":
			want = trace.Expect{Disposition: gate.Quarantined, Reason: gate.ReasonMissingEventID}
		case seen[ref.ID]:
			want = trace.Expect{Disposition: gate.Duplicate, Reason: gate.ReasonReplay}
		case errors.As(err, &bad):
			want = trace.Expect{Disposition: gate.Quarantined, Reason: bad.Reason}
		case s.At.Sub(at).Abs() > 5*time.Minute:
			want = trace.Expect{Disposition: gate.Quarantined, Reason: gate.ReasonSkew}
		}
		seen[ref.ID] = true
		if *s.Expect != want {
			t.Errorf("line %d (%q): expects %+v, want %+v", s.Line, ref.OccurredAt, *s.Expect, want)
		}
	}
}
