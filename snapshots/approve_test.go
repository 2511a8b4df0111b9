package snapshots

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"sluis/gate"
)

func TestApproveOnce(t *testing.T) {
	u := newUndoing(t)
	rb := u.planned(u.repeat())
	var wins []string
	var decided []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 8 {
		by := gate.Person(fmt.Sprintf("p%d", i))
		wg.Go(func() {
			_, err := u.Approve(t.Context(), by, rb.ID, rb.Version, rb.Hash)
			var lost *gate.DecidedError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				wins = append(wins, by.Name)
			case errors.As(err, &lost):
				decided = append(decided, lost.By)
				if lost.At.IsZero() || lost.What != "R-1" {
					t.Errorf("%s lost without when or what: %+v", by.Name, lost)
				}
			default:
				t.Errorf("%s: %v", by.Name, err)
			}
		})
	}
	wg.Wait()
	if len(wins) != 1 || len(decided) != 7 || slices.ContainsFunc(decided, func(by string) bool { return by != wins[0] }) {
		t.Fatalf("won: %v, lost to: %v", wins, decided)
	}
	applies := slices.DeleteFunc(u.queue.args, func(a river.JobArgs) bool { return a.Kind() != "rollback_apply" })
	if len(applies) != 1 {
		t.Errorf("%d apply jobs, want 1", len(applies))
	}
	for range 2 {
		wg.Go(func() {
			if err := u.RunApply(t.Context(), rb.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	u.run(rb.ID)
	if n := u.query(`select count(*) from audit_records where action = 'rollback.row'`); n != 3 {
		t.Errorf("%d rows recorded, want 3", n)
	}
}

func TestApproveRefusesWhatWasNotSeen(t *testing.T) {
	u := newUndoing(t)
	rb := u.planned(u.repeat())
	other := rb.Hash
	other[0]++
	for name, try := range map[string]func() error{
		"version": func() error { _, err := u.Approve(t.Context(), anna, rb.ID, rb.Version-1, rb.Hash); return err },
		"hash":    func() error { _, err := u.Approve(t.Context(), anna, rb.ID, rb.Version, other); return err },
	} {
		if err := try(); !errors.Is(err, gate.ErrStale) {
			t.Errorf("another %s: %v, want stale", name, err)
		}
	}
	u.World.Clock.Advance(31 * time.Minute)
	if _, err := u.Approve(t.Context(), anna, rb.ID, rb.Version, rb.Hash); !errors.Is(err, gate.ErrStale) {
		t.Errorf("after half an hour: %v, want stale", err)
	}
	if rb = u.get(rb.ID); rb.State != RollbackExpired {
		t.Errorf("state = %s, want expired", rb.State)
	}
	if n := u.query(`select count(*) from audit_records where action = 'rollback.refused'`); n != 3 {
		t.Errorf("%d refusals on the record, want 3", n)
	}
}

func TestApproveNamesMovedRows(t *testing.T) {
	u := newUndoing(t)
	rb := u.planned(u.repeat())
	u.hand(gate.OpUpdate, "V-000004", `{"nurse":"N-9"}`)
	u.hand(gate.OpDelete, "V-000006", "")
	_, err := u.Approve(t.Context(), anna, rb.ID, rb.Version, rb.Hash)
	var moved *MovedError
	if !errors.As(err, &moved) || len(moved.Rows) != 2 {
		t.Fatalf("approve: %v, want two rows named", err)
	}
	gone, changed := moved.Rows[0], moved.Rows[1]
	if gone.EntityID != "V-000006" || gone.Was == nil || gone.Is != nil {
		t.Errorf("removed by hand: %+v", gone)
	}
	if changed.EntityID != "V-000004" || !strings.Contains(string(changed.Is), "N-9") || changed.By != "hand" {
		t.Errorf("changed by hand: %+v", changed)
	}
	if rb = u.get(rb.ID); rb.State != RollbackCancelled || rb.Error == "" {
		t.Errorf("rollback is %s (%q), want cancelled with a reason", rb.State, rb.Error)
	}
	fresh, err := u.Replan(t.Context(), anna, rb.ID)
	if err != nil {
		t.Fatal(err)
	}
	fresh = u.dry(fresh.ID)
	wantEqual(t, "rows planned again", []string{"decision delete V-000004 planned", "compensation delete V-000002 planned"}, u.briefs(fresh.ID))
	fresh = u.run(u.approved(fresh).ID)
	wantEqual(t, "live: the hand edit is kept", "V-000001 V-000003 V-000004 V-000005", u.liveIDs())
	// The suspect whose visit was removed by hand is closed; the kept one is not.
	if n := u.query(`select count(*) from reservations where state = 'rolled_back'`); n != 2 {
		t.Errorf("%d mutations rolled back, want 2", n)
	}
	if fresh.ReadBack.Compared != 1 || fresh.ReadBack.Differ != 0 {
		t.Errorf("read back: %+v", fresh.ReadBack)
	}
}

func TestSetChoiceBindsANewHash(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	u.hand(gate.OpUpdate, "V-000004", `{"nurse":"N-9"}`)
	rb := u.planned(snap)
	again := u.planned(snap)
	if rb.Hash != again.Hash {
		t.Error("the same plan made again has another hash")
	}
	row := slices.IndexFunc(u.briefs(rb.ID), func(s string) bool { return strings.HasPrefix(s, "decision") }) + 1
	chosen, err := u.SetChoice(t.Context(), bram, rb.ID, row, "restore", rb.Version)
	if err != nil {
		t.Fatal(err)
	}
	if chosen.Hash == rb.Hash || chosen.Version == rb.Version || chosen.Summary.Compensations != 3 {
		t.Errorf("after the choice: %+v", chosen)
	}
	if _, err := u.SetChoice(t.Context(), anna, rb.ID, row, "keep", rb.Version); !errors.Is(err, gate.ErrStale) {
		t.Errorf("a choice on what is old: %v, want stale", err)
	}
	if _, err := u.SetChoice(t.Context(), anna, rb.ID, 99, "keep", chosen.Version); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("no such row: %v", err)
	}
	if _, err := u.SetChoice(t.Context(), anna, rb.ID, row, "perhaps", chosen.Version); !errors.Is(err, gate.ErrMalformed) {
		t.Errorf("no such choice: %v", err)
	}
	if _, err := u.Approve(t.Context(), anna, rb.ID, rb.Version, rb.Hash); !errors.Is(err, gate.ErrStale) {
		t.Errorf("approving what was seen before the choice: %v, want stale", err)
	}
	back, err := u.SetChoice(t.Context(), anna, rb.ID, row, "keep", chosen.Version)
	if err != nil || back.Hash != rb.Hash {
		t.Errorf("choosing back: %v; the hash is the first one: %v", err, back.Hash == rb.Hash)
	}
}

func TestCreatePlanChecksItsInput(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	suspect := func(id int64) []Suspect { return []Suspect{{Mutation: gate.MutationRecord{ID: id}}} }
	tests := map[string]struct {
		req  PlanRequest
		want error
	}{
		"no suspects":         {PlanRequest{Integration: "care", SnapshotSeq: snap.Seq}, gate.ErrMalformed},
		"no such snapshot":    {PlanRequest{Integration: "care", SnapshotSeq: 9, Mutations: suspect(1)}, gate.ErrNotFound},
		"no such mutation":    {PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: suspect(999)}, gate.ErrNotFound},
		"a note without end":  {PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: suspect(1), Note: strings.Repeat("x", 2001)}, gate.ErrMalformed},
		"a source of its own": {PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: []Suspect{{Mutation: gate.MutationRecord{ID: 1}, Source: "guess"}}}, gate.ErrMalformed},
	}
	for name, tt := range tests {
		if _, err := u.CreatePlan(t.Context(), anna, tt.req); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	rb := u.planned(snap)
	u.run(u.approved(rb).ID)
	undone := int64(u.query(`select min(mutation_id) from reservations where state = 'rolled_back'`))
	if _, err := u.CreatePlan(t.Context(), anna, PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: suspect(undone)}); !errors.Is(err, gate.ErrStale) {
		t.Errorf("what is undone already: %v, want stale", err)
	}
}

func TestCancelAndReplan(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	first := u.planned(snap)
	second, err := u.Replan(t.Context(), bram, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := u.get(first.ID); got.State != RollbackCancelled || !strings.Contains(got.Error, "bram") {
		t.Errorf("the old plan is %s (%q), want withdrawn by bram", got.State, got.Error)
	}
	if got := u.dry(second.ID); got.Hash != first.Hash {
		t.Error("the same plan made again has another hash")
	}
	if _, err := u.Cancel(t.Context(), anna, second.ID, 1); !errors.Is(err, gate.ErrStale) {
		t.Errorf("cancel what was seen before: %v, want stale", err)
	}
	got, err := u.Cancel(t.Context(), anna, second.ID, u.get(second.ID).Version)
	if err != nil || got.State != RollbackCancelled {
		t.Errorf("cancel: %s, %v", got.State, err)
	}
	list, err := u.Rollbacks(t.Context(), "care", 0, 10)
	if err != nil || len(list) != 2 || list[0].ID != second.ID {
		t.Errorf("list = %v, %v; want two, newest first", list, err)
	}
}
