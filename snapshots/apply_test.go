package snapshots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

var errInjected = errors.New("injected")

// fault fails the nth call of one step, before it has any effect or after all
// of it.
type fault struct {
	step      string // commit or compensate
	nth       int
	persisted bool
	calls     map[string]int
}

func (f *fault) String() string {
	when := "failed, not persisted"
	if f.persisted {
		when = "failed, yet persisted"
	}
	return fmt.Sprintf("%s %d %s", f.step, f.nth, when)
}

// at runs act unless the fault says otherwise.
func (f *fault) at(step string, act func() error) error {
	f.calls[step]++
	hit := step == f.step && f.calls[step] == f.nth
	if hit && !f.persisted {
		return errInjected
	}
	if err := act(); err != nil {
		return err
	}
	if hit {
		return errInjected
	}
	return nil
}

// faultyGate loses calls or their answers.
type faultyGate struct {
	*gate.Gate
	fault *fault
}

func (g faultyGate) Compensate(ctx context.Context, by gate.Actor, c gate.Compensation) (d gate.Decision, err error) {
	err = g.fault.at("compensate", func() (err error) {
		d, err = g.Gate.Compensate(ctx, by, c)
		return err
	})
	if errors.Is(err, errInjected) {
		return gate.Decision{}, err
	}
	return d, err
}

// faultyTx loses commits or their answers.
type faultyTx struct {
	pgx.Tx
	fault *fault
}

func (tx faultyTx) Commit(ctx context.Context) error {
	return tx.fault.at("commit", func() error { return tx.Tx.Commit(ctx) })
}

// inject puts the fault between the rollbacks and what they write to.
func (u *undoing) inject(f *fault) {
	f.calls = map[string]int{}
	u.rollbacks.gate = faultyGate{u.World.Gate, f}
	u.begin = func(ctx context.Context) (pgx.Tx, error) {
		tx, err := u.World.Pool.Begin(ctx)
		return faultyTx{tx, f}, err
	}
}

// TestApplySurvivesEachFault loses each write and each call of an apply once
// before and once after it took effect; the next process goes on.
func TestApplySurvivesEachFault(t *testing.T) {
	clean := newUndoing(t)
	rb := clean.approved(clean.planned(clean.repeat()))
	count := &fault{}
	clean.inject(count)
	clean.run(rb.ID)
	if count.calls["commit"] != 8 || count.calls["compensate"] != 3 {
		t.Fatalf("calls of a clean run: %v", count.calls)
	}
	for _, step := range []string{"commit", "compensate"} {
		for nth := 1; nth <= count.calls[step]; nth++ {
			for _, persisted := range []bool{false, true} {
				f := &fault{step: step, nth: nth, persisted: persisted}
				t.Run(f.String(), func(t *testing.T) {
					t.Parallel()
					survive(t, f)
				})
			}
		}
	}
}

func survive(t *testing.T, f *fault) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	u.inject(f)
	if err := u.RunApply(t.Context(), rb.ID); !errors.Is(err, errInjected) {
		t.Fatalf("apply: %v, want the injected fault", err)
	}
	u.restart()
	rb = u.run(rb.ID)
	if rb.State != RollbackApplied || rb.ReadBack.Differ != 0 || rb.ReadBack.Compared != 3 {
		t.Errorf("rollback is %s, read back %+v", rb.State, rb.ReadBack)
	}
	wantEqual(t, "live", "V-000001 V-000003 V-000005", u.liveIDs())
	for what, sql := range map[string]string{
		"compensations sent":       `select count(*) from mutations where rollback_id is not null`,
		"rows recorded":            `select count(*) from audit_records where action = 'rollback.row'`,
		"keys closed":              `select count(*) from reservations where state = 'rolled_back'`,
		"rows with their mutation": `select count(distinct mutation_id) from rollback_rows where state = 'verified'`,
	} {
		if n := u.query(sql); n != 3 {
			t.Errorf("%s: %d, want 3", what, n)
		}
	}
	if n := u.query(`select count(*) from audit_records where action = 'rollback.applied'`); n != 1 {
		t.Errorf("applied is on the record %d times", n)
	}
	u.CheckInvariants()
}

// TestApplyLooksUpWhatItCannotKnow: the target applies a row and cuts the
// connection.
func TestApplyLooksUpWhatItCannotKnow(t *testing.T) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	cut := sandbox.Fault{Kind: sandbox.CutAfter, Count: 1, Match: sandbox.Match{Op: "delete"}}
	if err := u.System.SetFaults([]sandbox.Fault{cut}); err != nil {
		t.Fatal(err)
	}
	if rb = u.run(rb.ID); rb.State != RollbackApplied {
		t.Errorf("rollback is %s (%s)", rb.State, rb.Error)
	}
	wantEqual(t, "live", "V-000001 V-000003 V-000005", u.liveIDs())
}

// TestApplySendsAgainWhatWasProvedAbsent: the target fails before it applies a
// row, so that nobody knows until it is asked; then the row is sent again.
func TestApplySendsAgainWhatWasProvedAbsent(t *testing.T) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	failing := sandbox.Fault{Kind: sandbox.ErrorBefore, Count: 1, Match: sandbox.Match{Op: "delete"}}
	if err := u.System.SetFaults([]sandbox.Fault{failing}); err != nil {
		t.Fatal(err)
	}
	if rb = u.run(rb.ID); rb.State != RollbackApplied {
		t.Errorf("rollback is %s (%s)", rb.State, rb.Error)
	}
	wantEqual(t, "live", "V-000001 V-000003 V-000005", u.liveIDs())
	if n := u.query(`select count(*) from reservations where attempt = 2`); n != 1 {
		t.Errorf("%d rows were sent again, want 1", n)
	}
	u.CheckInvariants()
}

// waitingGate answers as a gate does whose send is under way elsewhere.
type waitingGate struct{ *gate.Gate }

func (g waitingGate) Compensate(context.Context, gate.Actor, gate.Compensation) (gate.Decision, error) {
	return gate.Decision{State: gate.InFlight, MutationID: 1}, fmt.Errorf("M-1: %w", gate.ErrInFlight)
}

func (g waitingGate) Recheck(context.Context, int64) (gate.Decision, error) {
	return gate.Decision{State: gate.InFlight, MutationID: 1}, fmt.Errorf("M-1: %w", gate.ErrInFlight)
}

func TestApplyWaitsForAnOutcome(t *testing.T) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	u.rollbacks.gate = waitingGate{u.World.Gate}
	if rb = u.run(rb.ID); rb.State != RollbackApplying {
		t.Fatalf("rollback is %s, want applying", rb.State)
	}
	wantEqual(t, "rows", []string{
		"compensation delete V-000006 sending", "compensation delete V-000004 planned", "compensation delete V-000002 planned",
	}, u.briefs(rb.ID))
	u.restart()
	if rb = u.run(rb.ID); rb.State != RollbackApplied {
		t.Errorf("rollback is %s, want applied once the gate knows", rb.State)
	}
}

func TestApplyStopsOnARefusal(t *testing.T) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	u.hand(gate.OpUpdate, "V-000004", `{"nurse":"N-9"}`)
	if rb = u.run(rb.ID); rb.State != RollbackStopped || !strings.Contains(rb.Error, "V-000004") {
		t.Fatalf("rollback is %s (%q), want stopped at V-000004", rb.State, rb.Error)
	}
	wantEqual(t, "rows", []string{
		"compensation delete V-000006 verified", "compensation delete V-000004 failed", "compensation delete V-000002 planned",
	}, strings.Split(strings.ReplaceAll(strings.Join(u.briefs(rb.ID), "\n"), "applied", "verified"), "\n"))
	var moved *MovedError
	if _, err := u.Resume(t.Context(), bram, rb.ID, rb.Version); !errors.As(err, &moved) || moved.Rows[0].EntityID != "V-000004" {
		t.Errorf("resume: %v, want the row that moved", err)
	}
	if _, err := u.SkipFailed(t.Context(), bram, rb.ID, 2, rb.Version, " "); !errors.Is(err, gate.ErrMalformed) {
		t.Errorf("skip without a note: %v", err)
	}
	if _, err := u.SkipFailed(t.Context(), bram, rb.ID, 3, rb.Version, "x"); !errors.Is(err, gate.ErrStale) {
		t.Errorf("skip a row that did not fail: %v", err)
	}
	skipped, err := u.SkipFailed(t.Context(), bram, rb.ID, 2, rb.Version, "the client asked for it")
	if err != nil || skipped.State != RollbackApplying || skipped.Error != "" {
		t.Fatalf("skip: %s, %v", skipped.State, err)
	}
	if rb = u.run(rb.ID); rb.State != RollbackApplied || rb.ReadBack.Compared != 2 {
		t.Errorf("rollback is %s, read back %+v", rb.State, rb.ReadBack)
	}
	wantEqual(t, "live", "V-000001 V-000003 V-000004 V-000005", u.liveIDs())
	if n := u.query(`select count(*) from reservations where state = 'rolled_back'`); n != 2 {
		t.Errorf("%d keys closed, want 2: what was skipped keeps its key", n)
	}
}

// TestResumeAfterTheEntityIsBack: what was approved is there again, at a later
// version.
func TestResumeAfterTheEntityIsBack(t *testing.T) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	u.hand(gate.OpUpdate, "V-000006", `{"nurse":"N-9"}`)
	rb = u.run(rb.ID)
	u.hand(gate.OpUpdate, "V-000006", `{"nurse":"N-1"}`)
	rb, err := u.Resume(t.Context(), bram, rb.ID, rb.Version)
	if err != nil || rb.State != RollbackApplying {
		t.Fatalf("resume: %s, %v", rb.State, err)
	}
	if rb = u.run(rb.ID); rb.State != RollbackApplied {
		t.Errorf("rollback is %s (%s)", rb.State, rb.Error)
	}
	wantEqual(t, "live", "V-000001 V-000003 V-000005", u.liveIDs())
}

func TestApplyCountsWhatIsAlreadyGone(t *testing.T) {
	u := newUndoing(t)
	rb := u.approved(u.planned(u.repeat()))
	u.hand(gate.OpDelete, "V-000004", "")
	if rb = u.run(rb.ID); rb.State != RollbackApplied || rb.ReadBack.Differ != 0 {
		t.Fatalf("rollback is %s (%s)", rb.State, rb.Error)
	}
	if n := u.query(`select count(*) from reservations where state = 'rolled_back'`); n != 3 {
		t.Errorf("%d keys closed, want 3", n)
	}
}

// TestApplyTwoRowsOfOneEntity: after the first row the entity has a new
// version, by this rollback's own hand.
func TestApplyTwoRowsOfOneEntity(t *testing.T) {
	u := newUndoing(t)
	u.Submit(u.Visit("E-1", "a", "r1"))
	snap := u.seal()
	d := u.update("E-2", "V-000001", `{"nurse":"N-7","start":"2025-10-29T10:00:00+01:00"}`)
	u.hand(gate.OpUpdate, "V-000001", `{"nurse":"N-9"}`)
	rb := u.plannedFor(snap, []Suspect{{Mutation: gate.MutationRecord{ID: d.MutationID}}})
	wantEqual(t, "rows", []string{"compensation update V-000001 planned", "decision update V-000001 planned"}, u.briefs(rb.ID))
	rb, err := u.SetChoice(t.Context(), anna, rb.ID, 2, "restore", rb.Version)
	if err != nil {
		t.Fatal(err)
	}
	if rb = u.run(u.approved(rb).ID); rb.State != RollbackApplied || rb.ReadBack.Differ != 0 {
		t.Fatalf("rollback is %s (%s), read back %+v", rb.State, rb.Error, rb.ReadBack)
	}
	want := `{"client":"C-1","effect":"a","nurse":"N-1","start":"2025-10-29T08:00:00+01:00"}`
	wantEqual(t, "visit", want, string(u.System.Snapshot()[0].State))
	if n := u.query(`select count(*) from audit_records where action = 'mutation.rolled_back'`); n != 1 {
		t.Errorf("the key was closed %d times", n)
	}
}

func TestTakeUpHandsOutOrphans(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	ready := u.planned(snap)
	u.approved(u.planned(snap))
	kinds := func() []string {
		u.queue.args = nil
		if err := u.takeUpAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := []string{}
		for _, a := range u.queue.args {
			out = append(out, a.Kind())
		}
		return out
	}
	wantEqual(t, "handed out", []string{"rollback_apply"}, kinds())
	held := u.alone(t.Context(), lockApply, "care", func(context.Context) error {
		wantEqual(t, "handed out while another works", []string{}, kinds())
		return nil
	})
	if held != nil {
		t.Fatal(held)
	}
	if _, err := u.CreatePlan(t.Context(), anna, PlanRequest{Integration: "care", SnapshotSeq: snap.Seq,
		Mutations: []Suspect{{Mutation: gate.MutationRecord{ID: 4}}}}); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "handed out", []string{"rollback_apply", "rollback_plan"}, slices.Sorted(slices.Values(kinds())))
	u.World.Clock.Advance(u.planTTL)
	kinds()
	if got := u.get(ready.ID); got.State != RollbackExpired {
		t.Errorf("a plan that nobody approved is %s, want expired", got.State)
	}
}

// TestRollbackTableRefusesWhatTheTableNeverNames mirrors rollbackMoves.
func TestRollbackTableRefusesWhatTheTableNeverNames(t *testing.T) {
	u := newUndoing(t)
	snap := u.seal()
	for name, sql := range map[string]string{
		"approved by nobody":     `insert into rollbacks (integration, snapshot_seq, state, created_at, created_by, hash) values ('care', $1, 'approved', $2, 'x', sha256('x'))`,
		"ready without a hash":   `insert into rollbacks (integration, snapshot_seq, state, created_at, created_by) values ('care', $1, 'ready', $2, 'x')`,
		"approved as other hash": `insert into rollbacks (integration, snapshot_seq, state, created_at, created_by, hash, approved_at, approved_by, approved_hash) values ('care', $1, 'approved', $2, 'x', sha256('x'), $2, 'x', sha256('y'))`,
		"a state of its own":     `insert into rollbacks (integration, snapshot_seq, state, created_at, created_by) values ('care', $1, 'done', $2, 'x')`,
	} {
		if _, err := u.World.Pool.Exec(t.Context(), sql, snap.Seq, gatetest.Start); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestRollbackJobs(t *testing.T) {
	u := newUndoing(t)
	workers := river.NewWorkers()
	u.rollbackWorkers(workers)
	if n := len(u.rollbackPeriodic()); n != 1 {
		t.Errorf("%d periodic jobs, want 1", n)
	}
	rb := u.planned(u.repeat())
	u.approved(rb)
	if err := (&applyWorker{rollbacks: u.rollbacks}).Work(t.Context(), &river.Job[applyArgs]{Args: applyArgs{ID: rb.ID}}); err != nil {
		t.Fatal(err)
	}
	if got := u.get(rb.ID); got.State != RollbackApplied {
		t.Errorf("after the job it is %s", got.State)
	}
	if err := (&planWorker{rollbacks: u.rollbacks}).Work(t.Context(), &river.Job[planArgs]{Args: planArgs{ID: rb.ID}}); err != nil {
		t.Errorf("a dry run that came too late: %v", err)
	}
	if err := (&takeUpWorker{rollbacks: u.rollbacks}).Work(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
