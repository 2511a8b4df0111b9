package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
	"sluis/snapshots/s3server/s3test"
)

// plainWorlds seals by copying the projection, without a store.
type plainWorlds struct {
	snaps  []Snapshot
	worlds map[int64]memoryWorld
	late   map[int64][]int64 // on their way at the moment of the snapshot
}

func (p *plainWorlds) Get(_ context.Context, integration string, seq int64) (Snapshot, error) {
	for _, s := range p.snaps {
		if s.Integration == integration && s.Seq == seq {
			return s, nil
		}
	}
	return Snapshot{}, fmt.Errorf("snapshot %d: %w", seq, gate.ErrNotFound)
}

func (p *plainWorlds) open(_ context.Context, s Snapshot) (baseWorld, Position, error) {
	return p.worlds[s.Seq], Position{Last: s.LastMutation, Open: p.late[s.Seq]}, nil
}

// queue remembers what was inserted.
type queue struct {
	mu   sync.Mutex
	args []river.JobArgs
}

func (q *queue) InsertTx(_ context.Context, _ pgx.Tx, args river.JobArgs, _ *river.InsertOpts) (*rivertype.JobInsertResult, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.args = append(q.args, args)
	return &rivertype.JobInsertResult{}, nil
}

// undoing is a real gate over the sandbox, with rollbacks on top.
type undoing struct {
	*gatetest.World
	*rollbacks
	worlds *plainWorlds
	queue  *queue
}

var (
	anna = gate.Person("anna")
	bram = gate.Person("bram")
)

func newUndoing(t *testing.T) *undoing {
	t.Helper()
	u := &undoing{World: gatetest.New(t, gate.ModeOff), worlds: &plainWorlds{worlds: map[int64]memoryWorld{}}, queue: &queue{}}
	u.restart()
	return u
}

// restart is a new process on the same database.
func (u *undoing) restart() {
	u.rollbacks = newRollbacks(u.World.Pool, u.World.Gate, u.worlds, u.World.Clock, slog.New(slog.DiscardHandler), 30*time.Minute)
	u.rollbacks.jobs = u.queue
}

func (u *undoing) query(sql string, args ...any) int {
	u.T.Helper()
	var n int
	if err := u.World.Pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		u.T.Fatal(err)
	}
	return n
}

// seal takes a snapshot of the projection.
func (u *undoing) seal() Snapshot {
	u.T.Helper()
	ctx := context.Background()
	seq := int64(len(u.worlds.snaps) + 1)
	world := memoryWorld{}
	rows, err := u.World.Pool.Query(ctx, `select type, id, state, subject from entities where integration = 'care' and not deleted`)
	if err != nil {
		u.T.Fatal(err)
	}
	var k entityKey
	var state []byte
	var subject string
	_, err = pgx.ForEachRow(rows, []any{&k.Type, &k.ID, &state, &subject}, func() error {
		world[k] = recorded{State: slices.Clone(state), Subject: subject}
		return nil
	})
	if err != nil {
		u.T.Fatal(err)
	}
	snap := Snapshot{Integration: "care", Seq: seq, TakenAt: u.World.Clock.Now(), ManifestHash: [32]byte{byte(seq)},
		LastMutation: int64(u.query(`select coalesce(max(id), 0) from mutations`))}
	_, err = u.World.Pool.Exec(ctx, `
		insert into snapshots (integration, seq, taken_at, manifest_key, manifest_version, manifest_hash, prev_hash, body_key,
			body_version, body_hash, body_size, entities, last_mutation, audit_pos, audit_hash, retain_until)
		values ('care', $1, $2, '', '', $3, '', '', '', $3, 0, 0, $4, 0, '', $2)`,
		seq, snap.TakenAt, snap.ManifestHash[:], snap.LastMutation)
	if err != nil {
		u.T.Fatal(err)
	}
	u.worlds.snaps, u.worlds.worlds[seq] = append(u.worlds.snaps, snap), world
	return snap
}

// update submits a change of a visit by event id.
func (u *undoing) update(event, id, body string) gate.Decision {
	u.T.Helper()
	r := u.Visit(event, "", "run-"+event)
	r.Mutation = gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: id, Subject: "C-1", Body: json.RawMessage(body)}
	return u.Submit(r)
}

// hand changes the record system past the gate.
func (u *undoing) hand(op gate.Op, id, body string) {
	u.T.Helper()
	if _, err := u.System.Apply(sandbox.Change{Op: op, Type: "visit", ID: id, Body: json.RawMessage(body), Actor: "hand"}); err != nil {
		u.T.Fatal(err)
	}
}

// liveIDs lists the visits of the record system.
func (u *undoing) liveIDs() string {
	var ids []string
	for _, e := range u.System.Snapshot() {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, " ")
}

// repeat plays a small incident: three visits, a snapshot, the same event
// again by another run, and a legitimate change of one of the doubles.
// V-1..3 are the first copies, V-4..6 the second; V-5 is touched.
func (u *undoing) repeat() Snapshot {
	u.T.Helper()
	for _, effect := range []string{"a", "b", "c"} {
		u.Submit(u.Visit("E-1", effect, "r1"))
	}
	snap := u.seal()
	for _, effect := range []string{"a", "b", "c"} {
		u.Submit(u.Visit("E-1", effect, "r2"))
	}
	u.update("E-2", "V-000005", `{"nurse":"N-2"}`)
	if _, err := u.World.Gate.ScanPairs(context.Background(), gate.Job("scan"), "care"); err != nil {
		u.T.Fatal(err)
	}
	return snap
}

// planned makes a ready plan for what is proposed.
func (u *undoing) planned(snap Snapshot) Rollback {
	u.T.Helper()
	p, err := u.Propose(context.Background(), "care", snap.Seq)
	if err != nil {
		u.T.Fatal(err)
	}
	return u.plannedFor(snap, p.Suspects)
}

func (u *undoing) plannedFor(snap Snapshot, suspects []Suspect) Rollback {
	u.T.Helper()
	rb, err := u.CreatePlan(context.Background(), anna, PlanRequest{Integration: "care", SnapshotSeq: snap.Seq, Mutations: suspects})
	if err != nil {
		u.T.Fatal(err)
	}
	return u.dry(rb.ID)
}

func (u *undoing) dry(id int64) Rollback {
	u.T.Helper()
	if err := u.RunPlan(context.Background(), id); err != nil {
		u.T.Fatal(err)
	}
	rb := u.get(id)
	if rb.State != RollbackReady {
		u.T.Fatalf("R-%d is %s (%s), want ready", id, rb.State, rb.Error)
	}
	return rb
}

func (u *undoing) get(id int64) Rollback {
	u.T.Helper()
	rb, err := u.Rollback(context.Background(), id)
	if err != nil {
		u.T.Fatal(err)
	}
	return rb
}

func (u *undoing) approved(rb Rollback) Rollback {
	u.T.Helper()
	got, err := u.Approve(context.Background(), anna, rb.ID, rb.Version, rb.Hash)
	if err != nil {
		u.T.Fatal(err)
	}
	return got
}

func (u *undoing) run(id int64) Rollback {
	u.T.Helper()
	if err := u.RunApply(context.Background(), id); err != nil {
		u.T.Fatal(err)
	}
	return u.get(id)
}

func (u *undoing) briefs(id int64) []string {
	u.T.Helper()
	rows, err := u.Rows(context.Background(), id, "", 0, 100)
	if err != nil {
		u.T.Fatal(err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s %s %s %s", r.Kind, r.Op, r.EntityID, r.State))
	}
	return out
}

func wantEqual[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestRollbackUndoesARepeat(t *testing.T) {
	u := newUndoing(t)
	ctx := t.Context()
	snap := u.repeat()
	p, err := u.Propose(ctx, "care", snap.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Suspects) != 3 || len(p.Undecided) != 0 || p.Earlier != 0 {
		t.Fatalf("proposal: %d suspects, %d undecided, %d earlier", len(p.Suspects), len(p.Undecided), p.Earlier)
	}
	rb := u.planned(snap)
	wantEqual(t, "rows", []string{
		"compensation delete V-000006 planned", "compensation delete V-000004 planned", "compensation delete V-000002 planned",
	}, u.briefs(rb.ID))
	wantEqual(t, "summary", Summary{Compensations: 3, LaterKept: 2, ByOp: map[string]int{"delete": 3}, Subjects: 1, Checked: 6},
		rb.Summary)
	groups, err := u.Groups(ctx, rb.ID)
	if err != nil || len(groups) != 1 || groups[0].Count != 3 || groups[0].Sample.EntityID != "V-000006" {
		t.Errorf("groups = %+v, %v; want one of three", groups, err)
	}
	rows, err := u.Rows(ctx, rb.ID, groups[0].Key, 1, 1)
	if err != nil || len(rows) != 1 || rows[0].Row != 2 {
		t.Errorf("second row of the group = %+v, %v", rows, err)
	}
	suspects, err := u.Suspects(ctx, rb.ID, 2, 1)
	if err != nil || len(suspects) != 2 || suspects[0].Twin == 0 || suspects[0].Mutation.Mutation.Type != "visit" {
		t.Errorf("suspects = %+v, %v", suspects, err)
	}
	rb = u.run(u.approved(rb).ID)
	if rb.State != RollbackApplied || rb.ReadBack == nil || rb.ReadBack.Differ != 0 || rb.ReadBack.Compared != 3 {
		t.Fatalf("rollback = %+v", rb)
	}
	wantEqual(t, "live", "V-000001 V-000003 V-000005", u.liveIDs())
	wantEqual(t, "rows", []string{
		"compensation delete V-000006 verified", "compensation delete V-000004 verified", "compensation delete V-000002 verified",
	}, u.briefs(rb.ID))
	if n := u.query(`select count(*) from reservations where state = 'rolled_back'`); n != 3 {
		t.Errorf("%d mutations are rolled back, want 3", n)
	}
	if n := u.query(`select count(*) from hash_pairs where state = 'undone' and rollback_id = $1`, rb.ID); n != 3 {
		t.Errorf("%d pairs are undone, want 3", n)
	}
	if d := u.Submit(u.Visit("E-1", "a", "r3")); d.Verdict != gate.Quarantine || d.Reason != gate.ReasonRolledBack {
		t.Errorf("the repeat again: %+v, want held as rolled back", d)
	}
	banner, err := u.Banner(ctx, "care")
	if err != nil || banner == nil || banner.ID != rb.ID {
		t.Errorf("banner = %v, %v", banner, err)
	}
	u.World.Clock.Advance(25 * time.Hour)
	if banner, err := u.Banner(ctx, "care"); err != nil || banner != nil {
		t.Errorf("banner after a day = %v, %v", banner, err)
	}
	if _, err := u.Replan(ctx, anna, rb.ID); !errors.Is(err, gate.ErrStale) {
		t.Errorf("plan again after applying: %v, want nothing left", err)
	}
	u.CheckInvariants()
}

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

func TestSuspectsByRunAndRange(t *testing.T) {
	u := newUndoing(t)
	snap := u.repeat()
	byRun, err := u.SuspectsByRun(t.Context(), "care", snap.Seq, "r2")
	if err != nil || len(byRun) != 3 || byRun[0].Source != sourceRun {
		t.Errorf("by run: %+v, %v", byRun, err)
	}
	if r1, err := u.SuspectsByRun(t.Context(), "care", snap.Seq, "r1"); err != nil || len(r1) != 0 {
		t.Errorf("a run before the snapshot: %+v, %v", r1, err)
	}
	now := u.World.Clock.Now()
	in, err := u.SuspectsByRange(t.Context(), "care", snap.Seq, now, now.Add(time.Second))
	if err != nil || len(in) != 4 || in[0].Source != sourceRange {
		t.Errorf("by range: %d, %v", len(in), err)
	}
	if out, err := u.SuspectsByRange(t.Context(), "care", snap.Seq, now.Add(-time.Hour), now); err != nil || len(out) != 0 {
		t.Errorf("a range is half open: %d, %v", len(out), err)
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

// TestServiceRollsBack is the whole path over sealed snapshots in a real store.
func TestServiceRollsBack(t *testing.T) {
	w := gatetest.New(t, gate.ModeOff)
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Pool: w.Pool, Gate: w.Gate, Store: s3test.Store(t), Keys: keys, Clock: w.Clock, RealNow: time.Now, Retention: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	const visits = 40
	for i := range visits {
		w.Submit(w.Visit("E-1", fmt.Sprintf("e%02d", i), "r1"))
	}
	if _, err := s.Take(ctx, gate.Job("snapshot"), "care"); err != nil {
		t.Fatal(err)
	}
	expected := w.System.Snapshot()
	w.Clock.Advance(15 * time.Minute)
	for i := range visits {
		w.Submit(w.Visit("E-1", fmt.Sprintf("e%02d", i), "r2"))
	}
	if _, err := s.Take(ctx, gate.Job("snapshot"), "care"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Gate.ScanPairs(ctx, gate.Job("scan"), "care"); err != nil {
		t.Fatal(err)
	}
	good, reason, err := s.LastGood(ctx, "care")
	if err != nil || good.Seq != 1 || reason.ID == 0 {
		t.Fatalf("last good snapshot = %d for P-%d, %v; want the first", good.Seq, reason.ID, err)
	}
	u := &undoing{World: w, rollbacks: s.rollbacks}
	rb := u.planned(good)
	if rb.Summary.Compensations != visits || rb.Summary.Checked != 2*visits || rb.Summary.Outside != 0 {
		t.Errorf("summary = %+v", rb.Summary)
	}
	if rb = u.run(u.approved(rb).ID); rb.State != RollbackApplied || rb.ReadBack.Differ != 0 {
		t.Fatalf("rollback is %s (%s), read back %+v", rb.State, rb.Error, rb.ReadBack)
	}
	wantEqual(t, "the record system", expected, w.System.Snapshot())
	wantEqual(t, "mutations of the event that are rolled back", visits,
		u.query(`select count(*) from reservations where state = 'rolled_back'`))
	w.CheckInvariants()
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
