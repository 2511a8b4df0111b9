package snapshots_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
	"sluis/gate/sandbox/trace"
	"sluis/snapshots"
	"sluis/snapshots/s3server/s3test"
)

// incident is the recorded care incident, played through a real gate.
type incident struct {
	*gatetest.World
	snapshots *snapshots.Service
	trace     *trace.Trace
	result    trace.Result
}

// zone is where the care organisation lives.
func zone(t testing.TB) *time.Location {
	t.Helper()
	z, err := time.LoadLocation("Europe/Amsterdam")
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// playIncident plays the incident in a mode, with snapshots each quarter until
// the given moment and hourly ones after it, and the nightly scan.
func playIncident(t *testing.T, mode gate.Mode) *incident {
	t.Helper()
	tr := trace.CareIncident()
	w := gatetest.NewAt(t, mode, tr.Meta.From)
	if err := w.System.Seed(tr.Seed()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Gate.Baseline(t.Context(), gate.Job("test"), gatetest.Care); err != nil {
		t.Fatal(err)
	}
	keys, _, err := snapshots.GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	in := &incident{World: w, trace: tr}
	in.snapshots, err = snapshots.New(snapshots.Config{
		Pool: w.Pool, Gate: w.Gate, Store: s3test.Store(t), Keys: keys, Clock: w.Clock, RealNow: time.Now, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	repeat := time.Date(2025, 10, 26, 1, 30, 0, 0, time.UTC)
	in.result, err = trace.Play(t.Context(), tr, trace.Player{
		Deliver: func(ctx context.Context, raw []byte) (gate.Receipt, error) {
			return w.Gate.Receive(ctx, gate.Agent("roster"), gatetest.Care, raw)
		},
		Submit: func(ctx context.Context, req gate.Request) (gate.Decision, error) {
			return w.Gate.Submit(ctx, gate.Agent("planning-agent"), req)
		},
		Target: w.Target, Clock: w.Clock, Edit: trace.EditOver(w.Server.URL, "", w.Target),
		Tick: func(ctx context.Context, at time.Time) error {
			if at.Before(repeat) || at.Minute() == 0 {
				if _, err := in.snapshots.Take(ctx, gate.Job("snapshot"), gatetest.Care); err != nil {
					return err
				}
			}
			if local := at.In(zone(t)); local.Hour() == 3 && local.Minute() == 15 {
				_, err := w.Gate.ScanPairs(ctx, gate.Job("pair-scan"), gatetest.Care)
				return err
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// board is Wednesday's figures.
func (in *incident) board() trace.Figures {
	return trace.Board(in.System.Snapshot(), in.trace.Meta.Board)
}

// plan makes the plan that the console proposes, and runs its dry run.
func (in *incident) plan(t *testing.T) snapshots.Rollback {
	t.Helper()
	good, reason, err := in.snapshots.LastGood(t.Context(), gatetest.Care)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2025, 10, 26, 1, 0, 0, 0, time.UTC); !good.TakenAt.Equal(want) || reason.ID == 0 {
		t.Fatalf("the last good snapshot is of %s, want the one before the repeat, of %s", good.TakenAt, want)
	}
	proposal, err := in.snapshots.Propose(t.Context(), gatetest.Care, good.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if len(proposal.Suspects) != 312 || len(proposal.Undecided) != 0 {
		t.Fatalf("%d suspects, %d undecided, want 312 and none", len(proposal.Suspects), len(proposal.Undecided))
	}
	rb, err := in.snapshots.CreatePlan(t.Context(), gate.Person("anna"), snapshots.PlanRequest{
		Integration: gatetest.Care, SnapshotSeq: good.Seq, Mutations: proposal.Suspects,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.snapshots.RunPlan(t.Context(), rb.ID); err != nil {
		t.Fatal(err)
	}
	return in.rollback(t, rb.ID)
}

func (in *incident) rollback(t *testing.T, id int64) snapshots.Rollback {
	t.Helper()
	rb, err := in.snapshots.Rollback(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rb
}

func (in *incident) rows(t *testing.T, id int64) []snapshots.Row {
	t.Helper()
	rows, err := in.snapshots.Rows(t.Context(), id, "", 0, 10000)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// contents is a board without ids and versions: what a planner reads.
func contents(entities []gate.Entity) map[string]int {
	m := map[string]int{}
	for _, e := range entities {
		m[e.Type+" "+string(e.State)]++
	}
	return m
}

func TestIncidentOffIsSeenReviewedAndUndone(t *testing.T) {
	in := playIncident(t, gate.ModeOff)
	if got := in.board(); got.Visits != 624 || got.MaxBeforeNoon != 12 {
		t.Fatalf("the board holds %d visits, most before noon %d; want 624 and 12", got.Visits, got.MaxBeforeNoon)
	}
	open, err := in.Gate.CountPairs(t.Context(), gate.PairFilter{Integration: gatetest.Care, States: []gate.PairState{gate.PairOpen}})
	if err != nil || open != 312 {
		t.Fatalf("%d open pairs (%v), want 312", open, err)
	}
	rb := in.plan(t)
	if rb.State != snapshots.RollbackReady || rb.Summary.Compensations != 312 || rb.Summary.ByOp["delete"] != 312 || rb.Summary.Decisions != 0 || rb.Summary.Residue != 0 {
		t.Fatalf("plan %s %+v (%s), want 312 removals and nothing to decide", rb.State, rb.Summary, rb.Error)
	}
	if rb, err = in.snapshots.Approve(t.Context(), gate.Person("anna"), rb.ID, rb.Version, rb.Hash); err != nil {
		t.Fatal(err)
	}
	if err := in.snapshots.RunApply(t.Context(), rb.ID); err != nil {
		t.Fatal(err)
	}
	rb = in.rollback(t, rb.ID)
	if rb.State != snapshots.RollbackApplied || rb.ReadBack == nil || rb.ReadBack.Differ != 0 || rb.ReadBack.Compared == 0 {
		t.Fatalf("after apply: %s %+v (%s)", rb.State, rb.ReadBack, rb.Error)
	}
	if got := in.board(); got.Visits != 312 || got.MaxBeforeNoon != 8 {
		t.Errorf("afterwards the board holds %d visits, most before noon %d; want 312 and 8", got.Visits, got.MaxBeforeNoon)
	}
	sound := playIncident(t, gate.ModeEnforce)
	if diff := cmp.Diff(contents(sound.System.Snapshot()), contents(in.System.Snapshot())); diff != "" {
		t.Errorf("not the world that the gate would have kept (-enforce +rolled back):\n%s", diff)
	}
	in.checkRedelivery(t, rb.ID)
	in.CheckInvariants()
	next, err := in.snapshots.Propose(t.Context(), gatetest.Care, rb.SnapshotSeq)
	if err != nil || len(next.Suspects) != 0 {
		t.Errorf("%d suspects are left after the rollback (%v)", len(next.Suspects), err)
	}
}

// checkRedelivery delivers the old event once more, and sends one of its
// mutations: both are held, whatever the mode.
func (in *incident) checkRedelivery(t *testing.T, id int64) {
	t.Helper()
	seen := map[string]bool{}
	var raw []byte
	for _, s := range in.trace.Steps {
		if s.Raw == nil {
			continue
		}
		if seen[*s.Raw] {
			raw = []byte(*s.Raw)
		}
		seen[*s.Raw] = true
	}
	if raw == nil {
		t.Fatal("the trace holds no event that is delivered twice")
	}
	r, err := in.Gate.Receive(t.Context(), gate.Agent("roster"), gatetest.Care, raw)
	if err != nil || r.Disposition != gate.Quarantined || r.Reason != gate.ReasonRolledBack || r.HandOn || r.Item == 0 {
		t.Errorf("the old event again: %+v, %v; want it held as rolled back", r, err)
	}
	it, err := in.Gate.Item(t.Context(), r.Item)
	if err != nil || it.RollbackID != id {
		t.Errorf("the item names rollback %d, want %d (%v)", it.RollbackID, id, err)
	}
	row := in.rows(t, id)[0]
	m, err := in.Gate.Mutation(t.Context(), row.Undoes[0])
	if err != nil {
		t.Fatal(err)
	}
	visits := in.Visits()
	d, err := in.Gate.Submit(t.Context(), gate.Agent("planning-agent"), gate.Request{
		Integration: gatetest.Care, Event: m.Event, Effect: m.Effect, Agent: m.Agent, Run: "run-late", Mutation: m.Mutation,
	})
	if err != nil || d.Verdict != gate.Quarantine || d.Reason != gate.ReasonRolledBack || in.Visits() != visits {
		t.Errorf("its mutation again: %+v, %v", d, err)
	}
}

func TestIncidentInEnforceAndShadow(t *testing.T) {
	enforce := playIncident(t, gate.ModeEnforce)
	if got := enforce.board(); got.Visits != 312 || got.MaxBeforeNoon != 8 {
		t.Errorf("enforce: %d visits, most before noon %d; want 312 and 8", got.Visits, got.MaxBeforeNoon)
	}
	drops, err := enforce.Gate.Drops(t.Context(), gatetest.Care, 0, 100)
	if err != nil || len(drops) != 1 || drops[0].Reason != gate.ReasonReplay || !drops[0].Enforced || drops[0].Acknowledged {
		t.Fatalf("drops %+v (%v), want one row for the repeat", drops, err)
	}
	if n := enforce.pairs(t); n != 0 {
		t.Errorf("enforce: %d hash pairs", n)
	}
	enforce.checkDropSignal(t, drops[0])

	shadow := playIncident(t, gate.ModeShadow)
	if got := shadow.board(); got.Visits != 624 {
		t.Errorf("shadow: %d visits, want 624", got.Visits)
	}
	if diff := cmp.Diff(deliveryDecisions(t, enforce), deliveryDecisions(t, shadow)); diff != "" {
		t.Errorf("shadow decides otherwise (-enforce +shadow):\n%s", diff)
	}
	var held int
	err = shadow.Pool.QueryRow(t.Context(), `select count(*) from decisions where kind = 'mutation' and decision = 'drop' and reason = 'replay' and not enforced`).Scan(&held)
	if err != nil || held != 312 {
		t.Errorf("shadow: %d mutations would have been dropped (%v), want 312", held, err)
	}
	enforce.CheckInvariants()
	shadow.CheckInvariants()
}

func (in *incident) pairs(t *testing.T) int64 {
	t.Helper()
	n, err := in.Gate.CountPairs(t.Context(), gate.PairFilter{Integration: gatetest.Care})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkDropSignal sees the row red until a named person acknowledges it.
func (in *incident) checkDropSignal(t *testing.T, drop gate.DropGroup) {
	t.Helper()
	signal := func() gate.Signal {
		list, err := in.Gate.Signals(t.Context(), gatetest.Care)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.ID == gate.SignalDrops {
				return s
			}
		}
		t.Fatal("there is no drop signal")
		return gate.Signal{}
	}
	s := signal()
	if s.Level != gate.LevelAct || s.Count != 1 {
		t.Errorf("the drop row is %s with %d, want act with 1", s.Level, s.Count)
	}
	if err := in.Gate.Acknowledge(t.Context(), gate.Person("otto"), gatetest.Care, gate.SignalDrops, drop.LastID, "seen"); err != nil {
		t.Fatal(err)
	}
	if s = signal(); s.Level == gate.LevelAct || s.AckedBy != "otto" {
		t.Errorf("after the acknowledgement the row is %s, acknowledged by %q", s.Level, s.AckedBy)
	}
}

// deliveryDecisions is what was decided on each delivery, mode aside.
func deliveryDecisions(t *testing.T, in *incident) []string {
	t.Helper()
	rows, err := in.Pool.Query(t.Context(), `select account, event_id, decision, reason from decisions where kind = 'delivery' order by id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var account, event, decision, reason string
		if err := rows.Scan(&account, &event, &decision, &reason); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint(account, " ", event, " ", decision, " ", reason))
	}
	return list
}

func TestHandEditsMovesAndRacesOfARollback(t *testing.T) {
	in := playIncident(t, gate.ModeOff)
	first := in.plan(t)
	rows := in.rows(t, first.ID)
	var edited, moved snapshots.Row
	for _, r := range rows {
		if r.Kind == snapshots.RowCompensation && edited.EntityID == "" {
			edited = r
		} else if r.Kind == snapshots.RowCompensation {
			moved = r
		}
	}
	in.handEdit(t, edited, `{"note":"Key is with the neighbours"}`)

	_, err := in.snapshots.Approve(t.Context(), gate.Person("anna"), first.ID, first.Version, first.Hash)
	var refused *snapshots.MovedError
	if !errors.As(err, &refused) || len(refused.Rows) != 1 || refused.Rows[0].EntityID != edited.EntityID || refused.Rows[0].By != "m.bakker" {
		t.Fatalf("approval after a row moved: %v; want it refused with %s named", err, edited.EntityID)
	}
	rb := in.plan(t)
	if rb.Summary.Compensations != 311 || rb.Summary.Decisions != 1 {
		t.Fatalf("the next plan: %+v, want 311 corrections and one decision", rb.Summary)
	}
	in.checkDecision(t, rb, edited)

	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		won     int
		decided int
	)
	for _, who := range []string{"anna", "bram", "anna"} {
		wg.Go(func() {
			_, err := in.snapshots.Approve(t.Context(), gate.Person(who), rb.ID, rb.Version, rb.Hash)
			mu.Lock()
			defer mu.Unlock()
			var lost *gate.DecidedError
			switch {
			case err == nil:
				won++
			case errors.As(err, &lost) && lost.By != "":
				decided++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 || decided != 2 {
		t.Errorf("%d approvals won and %d were told who decided, want 1 and 2", won, decided)
	}
	for range 2 {
		wg.Go(func() {
			if err := in.snapshots.RunApply(t.Context(), rb.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	rb = in.rollback(t, rb.ID)
	if rb.State != snapshots.RollbackApplied || rb.ReadBack.Differ != 0 {
		t.Fatalf("after apply: %s %+v %s", rb.State, rb.ReadBack, rb.Error)
	}
	if got := in.board().Visits; got != 313 {
		t.Errorf("%d visits, want 312 and the one that was kept", got)
	}
	kept, err := in.Target.Read(t.Context(), "visit", edited.EntityID)
	if err != nil || kept.UpdatedBy != "m.bakker" {
		t.Errorf("the edited visit: %+v, %v; want it untouched", kept, err)
	}
	if _, err := in.Target.Read(t.Context(), "visit", moved.EntityID); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("another duplicate: %v, want it gone", err)
	}
	for key, n := range in.System.Sends() {
		if n > 1 {
			t.Errorf("key %s was sent %d times", key, n)
		}
	}
	in.CheckInvariants()
}

// checkDecision sees the hand edit as a decision, kept by default.
func (in *incident) checkDecision(t *testing.T, rb snapshots.Rollback, edited snapshots.Row) {
	t.Helper()
	for _, r := range in.rows(t, rb.ID) {
		if r.EntityID != edited.EntityID {
			continue
		}
		var live struct{ Note string }
		if err := json.Unmarshal(r.Live, &live); err != nil {
			t.Fatal(err)
		}
		if r.Kind != snapshots.RowDecision || r.Choice != "keep" || r.LiveBy != "m.bakker" || live.Note != "Key is with the neighbours" {
			t.Errorf("the edited row: %s %s by %q", r.Kind, r.Choice, r.LiveBy)
		}
		return
	}
	t.Errorf("%s is not in the plan", edited.EntityID)
}

// handEdit changes an entity past the gate.
func (in *incident) handEdit(t *testing.T, r snapshots.Row, set string) {
	t.Helper()
	_, err := in.System.Apply(sandbox.Change{Op: gate.OpUpdate, Type: r.EntityType, ID: r.EntityID, Body: json.RawMessage(set), Actor: "m.bakker"})
	if err != nil {
		t.Fatal(err)
	}
}
