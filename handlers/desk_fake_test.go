package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/handlers"
	"sluis/migrations/testdb"
	"sluis/web"
	"sluis/web/webtest"
)

// fakeDesk is the gate as the desk sees it, in memory. It notes what it was
// asked and complains with the gate's own errors.
type fakeDesk struct {
	mu         sync.Mutex
	console    *webtest.Console
	items      []gate.Item // newest first
	filters    []gate.ItemFilter
	pairs      []gate.Pair
	open       []gate.MutationRecord
	mutations  []gate.MutationRecord
	deliveries []gate.DeliveryRecord
	drops      []gate.DropGroup
	entities   []gate.Projected
	signals    []gate.Signal
	records    []audit.Record
	signalErr  error
	broken     error
	acked      []int64
	scans      int
	settled    []string
}

// change changes the fake while the console serves.
func (f *fakeDesk) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeDesk) stateOf(id int64) (s gate.ItemState) {
	f.change(func() { s = f.at(id).State })
	return s
}

func (f *fakeDesk) Integration(_ context.Context, id string) (gate.Integration, error) {
	return gate.Integration{ID: id, Name: "Care", Mode: gate.ModeShadow}, nil
}

func (f *fakeDesk) Signals(context.Context, string) ([]gate.Signal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.signals), f.signalErr
}

func (f *fakeDesk) Signal(context.Context, string) (gate.Signal, error) {
	return gate.Signal{ID: gate.SignalSnapshot, Level: gate.LevelOK, Why: "fresh", Age: 4 * time.Minute, CheckedAt: f.console.Now(),
		WhyArgs: map[string]any{"Seq": int64(12)}}, nil
}

func (f *fakeDesk) Acknowledge(_ context.Context, _ gate.Actor, _, _ string, upto int64, _ string) error {
	f.acked = append(f.acked, upto)
	return nil
}

func (f *fakeDesk) Drops(_ context.Context, _ string, before int64, limit int) ([]gate.DropGroup, error) {
	return f.drops, nil
}

func (f *fakeDesk) Deliveries(_ context.Context, _ string, ref gate.EventRef) ([]gate.DeliveryRecord, error) {
	var list []gate.DeliveryRecord
	for _, d := range f.deliveries {
		if d.Event.Account == ref.Account && d.Event.ID == ref.ID {
			list = append(list, d)
		}
	}
	return list, nil
}

func (f *fakeDesk) EventMutations(_ context.Context, _ string, ref gate.EventRef, _ int) ([]gate.MutationRecord, error) {
	var list []gate.MutationRecord
	for _, m := range f.mutations {
		if m.Event.Account == ref.Account && m.Event.ID == ref.ID {
			list = append(list, m)
		}
	}
	return list, nil
}

func (f *fakeDesk) selects(filter gate.ItemFilter, i gate.Item) bool {
	return (len(filter.States) == 0 || slices.Contains(filter.States, i.State)) && (filter.Reason == "" || filter.Reason == i.Reason) &&
		(filter.Search == "" || filter.Search == i.Subject) && (filter.Before == 0 || i.ID < filter.Before) && (filter.UpTo == 0 || i.ID <= filter.UpTo)
}

func (f *fakeDesk) Items(_ context.Context, filter gate.ItemFilter) ([]gate.Item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filters = append(f.filters, filter)
	var list []gate.Item
	for _, i := range f.items {
		if f.selects(filter, i) && len(list) < max(filter.Limit, 1) {
			list = append(list, i)
		}
	}
	return list, nil
}

func (f *fakeDesk) CountItems(_ context.Context, filter gate.ItemFilter) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var n int64
	for _, i := range f.items {
		if f.selects(filter, i) {
			n++
		}
	}
	return n, nil
}

func (f *fakeDesk) at(id int64) *gate.Item {
	for n := range f.items {
		if f.items[n].ID == id {
			return &f.items[n]
		}
	}
	return nil
}

func (f *fakeDesk) Item(_ context.Context, id int64) (gate.Item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.at(id); i != nil {
		return *i, nil
	}
	return gate.Item{}, gate.ErrNotFound
}

func (f *fakeDesk) NextItem(_ context.Context, _ string, after int64) (next int64, position, total int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range slices.Backward(f.items) {
		if i.State != gate.ItemOpen {
			continue
		}
		total++
		if i.ID == after {
			position = total
		}
		if i.ID > after && next == 0 {
			next = i.ID
		}
	}
	return next, position, total, nil
}

func (f *fakeDesk) decide(by gate.Actor, id, version int64, note string, state gate.ItemState) (gate.Item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.at(id)
	switch {
	case i == nil:
		return gate.Item{}, gate.ErrNotFound
	case i.State != gate.ItemOpen:
		return gate.Item{}, &gate.DecidedError{What: "Q-" + strconv.FormatInt(id, 10), State: string(i.State), By: i.DecidedBy, At: i.DecidedAt}
	case i.Version != version:
		return gate.Item{}, gate.ErrStale
	}
	i.State, i.Version, i.DecidedBy, i.DecidedAt, i.Note = state, version+1, by.Name, f.console.Now(), note
	i.ReleaseAt = f.console.Now().Add(10 * time.Second)
	return *i, nil
}

func (f *fakeDesk) Release(_ context.Context, by gate.Actor, id, version int64, note string) (gate.Item, error) {
	return f.decide(by, id, version, note, gate.ItemReleasing)
}

func (f *fakeDesk) Reject(_ context.Context, by gate.Actor, id, version int64, note string) (gate.Item, error) {
	return f.decide(by, id, version, note, gate.ItemRejected)
}

func (f *fakeDesk) UndoRelease(_ context.Context, _ gate.Actor, id, version int64) (gate.Item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.at(id)
	if i.State != gate.ItemReleasing {
		return gate.Item{}, &gate.DecidedError{What: "Q-" + strconv.FormatInt(id, 10), State: string(i.State), By: i.DecidedBy, At: i.DecidedAt}
	}
	i.State, i.Version, i.DecidedBy, i.DecidedAt, i.Note = gate.ItemOpen, version+1, "", time.Time{}, ""
	return *i, nil
}

func (f *fakeDesk) OpenReservations(context.Context, string, int) ([]gate.MutationRecord, error) {
	return f.open, nil
}

func (f *fakeDesk) SettleByHand(_ context.Context, _ gate.Actor, id, version int64, applied bool, ref, note string) error {
	for _, m := range f.open {
		if m.ID == id && m.Version == version {
			f.settled = append(f.settled, strconv.FormatInt(id, 10)+" "+strconv.FormatBool(applied)+" "+ref+" "+note)
			return nil
		}
		if m.ID == id {
			return gate.ErrStale
		}
	}
	return &gate.DecidedError{What: "M-" + strconv.FormatInt(id, 10), State: "committed", By: "reconcile", At: f.console.Now()}
}

func (f *fakeDesk) Pairs(_ context.Context, filter gate.PairFilter) ([]gate.Pair, error) {
	var list []gate.Pair
	for _, p := range f.pairs {
		if (len(filter.States) == 0 || slices.Contains(filter.States, p.State)) && (filter.Before == 0 || p.ID < filter.Before) {
			list = append(list, p)
		}
	}
	return list, nil
}

func (f *fakeDesk) CountPairs(ctx context.Context, filter gate.PairFilter) (int64, error) {
	list, err := f.Pairs(ctx, filter)
	return int64(len(list)), err
}

func (f *fakeDesk) Pair(_ context.Context, id int64) (gate.Pair, error) {
	for _, p := range f.pairs {
		if p.ID == id {
			return p, nil
		}
	}
	return gate.Pair{}, gate.ErrNotFound
}

func (f *fakeDesk) JudgePair(_ context.Context, by gate.Actor, id, version int64, verdict gate.PairState, note string) (gate.Pair, error) {
	for n := range f.pairs {
		p := &f.pairs[n]
		switch {
		case p.ID != id:
		case p.State != gate.PairOpen:
			return gate.Pair{}, &gate.DecidedError{What: "P-" + strconv.FormatInt(id, 10), State: string(p.State), By: p.DecidedBy, At: p.DecidedAt}
		case p.Version != version:
			return gate.Pair{}, gate.ErrStale
		default:
			p.State, p.Version, p.DecidedBy, p.DecidedAt, p.Note = verdict, version+1, by.Name, f.console.Now(), note
			return *p, nil
		}
	}
	return gate.Pair{}, gate.ErrNotFound
}

func (f *fakeDesk) RequestScan(context.Context, gate.Actor, string) error { f.scans++; return nil }

func (f *fakeDesk) LastScan(context.Context, string) (time.Time, error) {
	return f.console.Now().Add(-time.Hour), nil
}

func (f *fakeDesk) SearchEntities(_ context.Context, _, query string, _ int) ([]gate.Projected, error) {
	var list []gate.Projected
	for _, e := range f.entities {
		if query != "" && (e.ID == query || e.Subject == query) {
			list = append(list, e)
		}
	}
	return list, nil
}

func (f *fakeDesk) Projected(_ context.Context, _, typ, id string) (gate.Projected, error) {
	for _, e := range f.entities {
		if e.Type == typ && e.ID == id {
			return e, nil
		}
	}
	return gate.Projected{}, gate.ErrNotFound
}

func (f *fakeDesk) EntityMutations(_ context.Context, _, typ, id string, _ int64, _ int) ([]gate.MutationRecord, error) {
	var list []gate.MutationRecord
	for _, m := range f.mutations {
		if m.Mutation.Type == typ && m.EntityID() == id {
			list = append(list, m)
		}
	}
	return list, nil
}

func (f *fakeDesk) Mutation(_ context.Context, id int64) (gate.MutationRecord, error) {
	for _, m := range f.mutations {
		if m.ID == id {
			return m, nil
		}
	}
	return gate.MutationRecord{}, gate.ErrNotFound
}

// ---- the audit record

func (f *fakeDesk) List(_ context.Context, filter audit.Filter) ([]audit.Record, error) {
	var list []audit.Record
	for _, r := range f.records {
		if (filter.Object == "" || filter.Object == r.Object) && (filter.Action == "" || filter.Action == r.Action) &&
			(filter.Actor == "" || filter.Actor == r.Actor) && (filter.Before == 0 || r.ID < filter.Before) &&
			(filter.From.IsZero() || !r.At.Before(filter.From)) && (filter.To.IsZero() || r.At.Before(filter.To)) {
			list = append(list, r)
		}
	}
	return list, nil
}

func (f *fakeDesk) Each(ctx context.Context, filter audit.Filter, do func(audit.Record) error) error {
	list, err := f.List(ctx, filter)
	for _, r := range list {
		if err := do(r); err != nil {
			return err
		}
	}
	return err
}

func (f *fakeDesk) Head(context.Context) (audit.Head, error) {
	return audit.Head{Pos: 2, Hash: [32]byte{0xab, 0xcd}}, nil
}

func (f *fakeDesk) Verify(context.Context) (audit.Head, error) {
	return audit.Head{Pos: 2}, f.broken
}

// ---- fixtures

var errDown = errors.New("connection refused")

func deskConsole(t *testing.T, fake *fakeDesk, signIn ...handlers.SignIn) *webtest.Console {
	t.Helper()
	console := webtest.New(t, testdb.Pool(t), func(c *webtest.Console) []web.Route {
		fake.console = c
		routes := handlers.Desk(handlers.DeskDeps{Gate: fake, Snapshot: fake, Audit: fake, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		for _, h := range signIn {
			h.Accounts = c.Accounts
			routes = append(routes, h.Routes()...)
		}
		return routes
	}, func(config *web.Config) {
		config.Integrations = func(context.Context) ([]string, error) { return []string{"care"}, nil }
		config.Classify = handlers.Classify
	})
	return console
}

func mutationOf(id int64, event string, op gate.Op, entity, body string) gate.MutationRecord {
	return gate.MutationRecord{
		ID: id, Integration: "care", Event: gate.EventRef{Account: "roster", ID: event, OccurredAt: "2025-10-26T02:47:00+02:00"},
		Effect: "visit", Agent: "planner-agent", Run: "run-" + event, ReceivedAt: webtest.Start, Mode: gate.ModeShadow, Verdict: gate.Forward,
		Forwarded: true, State: gate.Committed, Version: 1, Attempt: 1, ReservedAt: webtest.Start, SettledAt: webtest.Start, SettledBy: "agent",
		Mutation: gate.Mutation{Op: op, Type: "visit", ID: entity, Subject: "C-12", Body: json.RawMessage(body)},
	}
}

func heldItem(id int64) gate.Item {
	twin := mutationOf(100, "E-1", gate.OpUpdate, "V-1", `{"route":"R-118"}`)
	m := mutationOf(200+id, "E-2", gate.OpUpdate, "V-1", `{"route":"R-121","note":"sleutel bij de buren"}`)
	m.Verdict, m.Reason, m.State, m.Forwarded = gate.Quarantine, gate.ReasonKeyConflict, "", false
	return gate.Item{
		ID: id, Integration: "care", Reason: gate.ReasonKeyConflict, Subject: "C-12", State: gate.ItemOpen, Version: 3,
		OpenedAt: webtest.Start.Add(-time.Hour), Mutation: &m, Twin: &twin,
		Current: &gate.Projected{Integration: "care", Type: "visit", ID: "V-1", Version: 4, State: json.RawMessage(`{"route":"R-118","nurse":"M. de Vries"}`)},
	}
}
