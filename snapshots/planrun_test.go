package snapshots

import (
	"strings"
	"testing"

	"sluis/gate"
)

func TestPlanFailsInWords(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	p, err := u.Propose(t.Context(), "care", snap.Seq)
	if err != nil {
		t.Fatal(err)
	}
	rb, err := u.CreatePlan(t.Context(), anna, PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: p.Suspects})
	if err != nil {
		t.Fatal(err)
	}
	u.Server.Close()
	if err := u.RunPlan(t.Context(), rb.ID); err != nil {
		t.Fatal(err)
	}
	if rb = u.get(rb.ID); rb.State != RollbackFailed || !strings.Contains(rb.Error, "read the live state") {
		t.Errorf("rollback is %s (%q), want failed with what it could not do", rb.State, rb.Error)
	}
}

// TestPlanOfWhatIsUndoneMeanwhile: two plans for the same suspects; the second
// dry run comes after the first was applied.
func TestPlanOfWhatIsUndoneMeanwhile(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	first := u.planned(snap)
	p, err := u.Propose(t.Context(), "care", snap.Seq)
	if err != nil {
		t.Fatal(err)
	}
	second, err := u.CreatePlan(t.Context(), bram, PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: p.Suspects})
	if err != nil {
		t.Fatal(err)
	}
	u.run(u.approved(first).ID)
	if err := u.RunPlan(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	if second = u.get(second.ID); second.State != RollbackFailed || !strings.Contains(second.Error, "not in effect") {
		t.Errorf("the second plan is %s (%q), want failed: nothing is left", second.State, second.Error)
	}
}

// TestPlanReplaysWhatWasOnItsWay: a mutation below the snapshot's position that
// settled after it belongs to the replay.
func TestPlanReplaysWhatWasOnItsWay(t *testing.T) {
	u := newUndoing(t)
	u.Submit(u.Visit("E-1", "a", "r1"))
	snap := u.seal()
	late := u.update("E-2", "V-000001", `{"nurse":"N-3"}`)
	suspect := u.update("E-3", "V-000001", `{"nurse":"N-4"}`)
	u.worlds.snaps[0].LastMutation = late.MutationID
	u.worlds.late = map[int64][]int64{snap.Seq: {late.MutationID}}
	rb := u.plannedFor(snap, []Suspect{{Mutation: gate.MutationRecord{ID: suspect.MutationID}}})
	rows, err := u.Rows(t.Context(), rb.ID, "", 0, 10)
	if err != nil || len(rows) != 1 || string(rows[0].Body) != `{"nurse":"N-3"}` {
		t.Errorf("rows = %+v, %v; want one that restores N-3", rows, err)
	}
	rb = u.plannedFor(snap, []Suspect{{Mutation: gate.MutationRecord{ID: late.MutationID}}})
	if rb.Summary.Compensations != 0 || rb.Summary.Residue != 0 {
		t.Errorf("summary = %+v; what was overwritten since needs nothing", rb.Summary)
	}
}
