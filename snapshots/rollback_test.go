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
