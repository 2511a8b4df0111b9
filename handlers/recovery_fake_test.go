package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"sluis/gate"
	"sluis/handlers"
	"sluis/migrations/testdb"
	"sluis/snapshots"
	"sluis/views"
	"sluis/web"
	"sluis/web/webtest"
)

// fakeRecovery is the gate and the snapshots as the pages of recovery see them,
// in memory. It notes what it was asked to do.
type fakeRecovery struct {
	mu           sync.Mutex
	console      *webtest.Console
	integrations []gate.Integration
	list         []snapshots.Snapshot // newest first
	good         int64                // 0: none is that old
	reason       gate.Pair
	proposal     snapshots.Proposal
	rollback     snapshots.Rollback
	groups       []snapshots.Group
	rows         []snapshots.Row
	banner       *snapshots.Rollback
	counts       int64
	open         []gate.MutationRecord
	broken       error // of every read for the surroundings
	refuse       error // of every command
	asked        []string
	request      snapshots.PlanRequest
}

// do changes or reads the fake while the console serves.
func (f *fakeRecovery) do(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fakeRecovery) command(format string, args ...any) (snapshots.Rollback, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
	return f.rollback, f.refuse
}

func (f *fakeRecovery) Integrations(context.Context) ([]gate.Integration, error) {
	return f.integrations, nil
}

func (f *fakeRecovery) Integration(_ context.Context, id string) (gate.Integration, error) {
	for _, i := range f.integrations {
		if i.ID == id {
			return i, f.broken
		}
	}
	return gate.Integration{}, gate.ErrNotFound
}

func (f *fakeRecovery) SetMode(_ context.Context, by gate.Actor, id string, mode gate.Mode, version int64, note string) error {
	_, err := f.command("mode %s %s %d %q by %s", id, mode, version, note, by.Name)
	return err
}

func (f *fakeRecovery) SetFrozen(_ context.Context, by gate.Actor, id string, frozen bool, version int64, note string) error {
	_, err := f.command("frozen %s %t %d %q by %s", id, frozen, version, note, by.Name)
	return err
}

func (f *fakeRecovery) List(_ context.Context, _ string, before int64, limit int) ([]snapshots.Snapshot, error) {
	var list []snapshots.Snapshot
	for _, s := range f.list {
		if (before == 0 || s.Seq < before) && len(list) < limit {
			list = append(list, s)
		}
	}
	return list, nil
}

func (f *fakeRecovery) Get(_ context.Context, _ string, seq int64) (snapshots.Snapshot, error) {
	for _, s := range f.list {
		if s.Seq == seq {
			return s, nil
		}
	}
	return snapshots.Snapshot{}, gate.ErrNotFound
}

func (f *fakeRecovery) LastGood(ctx context.Context, integration string) (snapshots.Snapshot, gate.Pair, error) {
	s, err := f.Get(ctx, integration, f.good)
	return s, f.reason, err
}

func (f *fakeRecovery) Take(_ context.Context, by gate.Actor, integration string) (snapshots.Snapshot, error) {
	_, err := f.command("take %s by %s", integration, by.Name)
	return snapshots.Snapshot{Integration: integration, Seq: 23}, err
}

func (f *fakeRecovery) RequestVerify(_ context.Context, by gate.Actor, integration string) error {
	_, err := f.command("verify %s by %s", integration, by.Name)
	return err
}

func (f *fakeRecovery) Signal(context.Context, string) (gate.Signal, error) {
	return gate.Signal{ID: gate.SignalSnapshot, Level: gate.LevelAct, Why: "broken", WhyArgs: map[string]any{"Seq": int64(20)}}, f.broken
}

func (f *fakeRecovery) Propose(ctx context.Context, integration string, seq int64) (snapshots.Proposal, error) {
	s, err := f.Get(ctx, integration, seq)
	p := f.proposal
	p.Snapshot = s
	p.Suspects = append([]snapshots.Suspect(nil), p.Suspects...)
	return p, err
}

func (f *fakeRecovery) CreatePlan(_ context.Context, by gate.Actor, req snapshots.PlanRequest) (snapshots.Rollback, error) {
	f.do(func() { f.request = req })
	return f.command("plan %d of %d by %s", len(req.Mutations), req.SnapshotSeq, by.Name)
}

func (f *fakeRecovery) Replan(_ context.Context, by gate.Actor, id int64) (snapshots.Rollback, error) {
	return f.command("replan %d by %s", id, by.Name)
}

func (f *fakeRecovery) Rollback(_ context.Context, id int64) (rb snapshots.Rollback, err error) {
	f.do(func() { rb = f.rollback })
	if rb.ID != id {
		return rb, gate.ErrNotFound
	}
	return rb, nil
}

func (f *fakeRecovery) Rollbacks(_ context.Context, _ string, before int64, _ int) ([]snapshots.Rollback, error) {
	if f.rollback.ID == 0 || before != 0 {
		return nil, nil
	}
	return []snapshots.Rollback{f.rollback}, nil
}

func (f *fakeRecovery) Groups(context.Context, int64) ([]snapshots.Group, error) {
	return f.groups, nil
}

func (f *fakeRecovery) Rows(_ context.Context, _ int64, key string, after, limit int) ([]snapshots.Row, error) {
	var rows []snapshots.Row
	for _, w := range f.rows {
		if (key == "" || w.GroupKey == key) && w.Row > after && len(rows) < limit {
			rows = append(rows, w)
		}
	}
	return rows, nil
}

func (f *fakeRecovery) SetChoice(_ context.Context, by gate.Actor, id int64, row int, choice string, version int64) (snapshots.Rollback, error) {
	return f.command("choice %d row %d %s %d by %s", id, row, choice, version, by.Name)
}

func (f *fakeRecovery) Approve(_ context.Context, by gate.Actor, id, version int64, hash [32]byte) (snapshots.Rollback, error) {
	return f.command("approve %d %d %x by %s", id, version, hash[:2], by.Name)
}

func (f *fakeRecovery) Resume(_ context.Context, by gate.Actor, id, version int64) (snapshots.Rollback, error) {
	return f.command("resume %d %d by %s", id, version, by.Name)
}

func (f *fakeRecovery) SkipFailed(_ context.Context, by gate.Actor, id int64, row int, version int64, note string) (snapshots.Rollback, error) {
	return f.command("skip %d row %d %d %q by %s", id, row, version, note, by.Name)
}

func (f *fakeRecovery) Cancel(_ context.Context, by gate.Actor, id, version int64) (snapshots.Rollback, error) {
	return f.command("cancel %d %d by %s", id, version, by.Name)
}

func (f *fakeRecovery) Banner(context.Context, string) (*snapshots.Rollback, error) {
	return f.banner, f.broken
}

func (f *fakeRecovery) CountItems(context.Context, gate.ItemFilter) (int64, error) {
	return f.counts, f.broken
}

func (f *fakeRecovery) CountPairs(context.Context, gate.PairFilter) (int64, error) {
	return f.counts, nil
}

func (f *fakeRecovery) OpenReservations(context.Context, string, int) ([]gate.MutationRecord, error) {
	return f.open, nil
}

var errRecoveryDown = errors.New("the store is down")

func recoveryConsole(t *testing.T, fake *fakeRecovery) *webtest.Console {
	t.Helper()
	return webtest.New(t, testdb.Pool(t), func(c *webtest.Console) []web.Route {
		fake.console = c
		return append(platformRoutes(c), handlers.Recovery(handlers.RecoveryDeps{Gate: fake, Snapshots: fake, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})...)
	}, func(config *web.Config) {
		config.Integrations = func(context.Context) ([]string, error) { return []string{"care"}, nil }
		config.Classify = handlers.Classify
		config.Chrome = func(ctx context.Context, _ web.User, integration string) (views.Chrome, error) {
			return handlers.Chrome(ctx, fake, fake, integration)
		}
	})
}

// badNight is the incident: three visits that exist twice, one of them changed
// by hand since, and a change that nobody suspects.
func badNight() *fakeRecovery {
	f := &fakeRecovery{
		integrations: []gate.Integration{{ID: "care", Name: "Care planning", Mode: gate.ModeOff, MaxSkew: 5 * time.Minute, Version: 4,
			UpdatedAt: webtest.Start, UpdatedBy: "anna"}},
		good: 21,
	}
	for seq := int64(22); seq >= 20; seq-- {
		s := snapshots.Snapshot{Integration: "care", Seq: seq, TakenAt: webtest.Start.Add(time.Duration(seq-22) * 15 * time.Minute),
			ManifestHash: [32]byte{byte(seq)}, PrevHash: [32]byte{byte(seq - 1)}, Entities: 100 * seq, BodySize: 2048, LastMutation: 10 * seq,
			RetainUntil: webtest.Start.Add(90 * 24 * time.Hour)}
		f.list = append(f.list, s)
	}
	second := mutationOf(313, "evt-1", gate.OpCreate, "", `{"route":"R-1"}`)
	second.ExternalRef = "V-313"
	f.reason = gate.Pair{ID: 1, Integration: "care", First: mutationOf(1, "evt-1", gate.OpCreate, "V-1", `{"route":"R-1"}`), Second: second}
	for id := int64(313); id < 316; id++ {
		m := mutationOf(id, "evt-1", gate.OpCreate, fmt.Sprintf("V-%d", id), `{"route":"R-1"}`)
		f.proposal.Suspects = append(f.proposal.Suspects, snapshots.Suspect{Mutation: m, PairID: id - 312, Source: "pair", Twin: id - 312})
	}
	f.proposal.Undecided = []gate.Pair{{ID: 9, Integration: "care", Second: second}}
	f.rollback = snapshots.Rollback{
		ID: 5, Integration: "care", SnapshotSeq: 21, State: snapshots.RollbackReady, Version: 2, Hash: [32]byte{0xab, 0xcd},
		CreatedAt: webtest.Start, CreatedBy: "anna", PlannedAt: webtest.Start, ExpiresAt: webtest.Start.Add(30 * time.Minute), Note: "dubbele nacht", Suspects: 3,
		Summary: snapshots.Summary{Compensations: 2, Decisions: 1, Outside: 1, LaterKept: 18, Subjects: 2, Checked: 2208},
	}
	f.rows = []snapshots.Row{
		planRow(1, snapshots.RowCompensation, gate.OpDelete, "V-315"), planRow(2, snapshots.RowCompensation, gate.OpDelete, "V-314"),
		planRow(3, snapshots.RowDecision, gate.OpDelete, "V-313"), planRow(4, snapshots.RowOutside, "none", "V-7"),
	}
	f.rows[2].Choice, f.rows[2].LiveBy, f.rows[2].LiveAt = "keep", "nurse.els", webtest.Start
	f.rows[2].Live, f.rows[3].Live = json.RawMessage(`{"route":"R-2"}`), json.RawMessage(`{"route":"R-9"}`)
	for _, g := range []struct {
		first, n int
		op       gate.Op
	}{{0, 2, gate.OpDelete}, {2, 1, gate.OpDelete}, {3, 1, "none"}} {
		w := f.rows[g.first]
		f.groups = append(f.groups, snapshots.Group{Key: w.GroupKey, Kind: w.Kind, Op: g.op, Type: "visit", Count: g.n, Subjects: g.n, Sample: w,
			ByState: map[snapshots.RowState]int{snapshots.RowPlanned: g.n}})
	}
	return f
}

func planRow(row int, kind snapshots.RowKind, op gate.Op, id string) snapshots.Row {
	return snapshots.Row{Rollback: 5, Row: row, Kind: kind, GroupKey: string(kind) + "-visit", Op: op, EntityType: "visit", EntityID: id, Subject: "C-12",
		Body: json.RawMessage(`{}`), Base: json.RawMessage(`{"route":"R-1"}`), Live: json.RawMessage(`{"route":"R-1"}`), Choice: "restore",
		Undoes: []int64{313}, State: snapshots.RowPlanned}
}
