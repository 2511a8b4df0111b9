package gate_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/gate/sandbox"
)

func ids(list []gate.MutationRecord) (got []int64) {
	for _, m := range list {
		got = append(got, m.ID)
	}
	return got
}

func wantIDs(t *testing.T, what string, list []gate.MutationRecord, err error, want ...int64) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := cmp.Diff(want, ids(list)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAMutationIsReadAsItWasAsked(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	req := w.Visit("evt-1", "visit/1", "run-1")
	req.Basis = &gate.Basis{Type: "visit", ID: "V-9", Version: 3}
	req.Evidence = []string{"mail-7", "call-2"}
	req.Mutation.Body = []byte(`{"client":"C-1","nurse":"N-1"}`)
	d := w.Submit(req)
	got, err := w.Gate.Mutation(t.Context(), d.MutationID)
	if err != nil {
		t.Fatal(err)
	}
	want := gate.MutationRecord{
		ID: d.MutationID, Integration: gatetest.Care, Event: req.Event, Effect: req.Effect, Agent: req.Agent, Run: req.Run,
		Mutation: req.Mutation, Fingerprint: gate.Fingerprint(req.Mutation), Basis: req.Basis, Evidence: req.Evidence,
		ReceivedAt: gatetest.Start, Mode: gate.ModeEnforce, Verdict: gate.Forward, Forwarded: true,
		NaturalKey: d.Key, Key: d.Key, State: gate.Committed, Attempt: 1, Fence: 1, Version: got.Version,
		ReservedAt: gatetest.Start, SettledAt: gatetest.Start, SettledBy: "planner", ExternalRef: d.ExternalRef, Detail: got.Detail,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutation (-want +got):\n%s", diff)
	}
	if got.EntityID() != d.ExternalRef {
		t.Errorf("the entity is %q, want the target's %q", got.EntityID(), d.ExternalRef)
	}
	if _, err := w.Gate.Mutation(t.Context(), d.MutationID+1); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("no such mutation: %v", err)
	}
}

func TestMutationsAreListed(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	ctx, ref := t.Context(), gate.EventRef{Account: "home", ID: "evt-1"}
	create := w.Submit(w.Visit("evt-1", "visit/1", "run-1"))
	other := w.Submit(w.Visit("evt-1", "visit/2", "run-1"))
	w.Submit(w.Visit("evt-1", "visit/2", "run-2"))
	dropped := other.MutationID + 1
	update := w.Visit("evt-2", "", "run-3")
	update.Mutation = gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: create.ExternalRef, Subject: "C-1", Body: []byte(`{"nurse":"N-2"}`)}
	updated := w.Submit(update).MutationID
	if err := w.System.SetFaults([]sandbox.Fault{{Kind: sandbox.Refuse, Count: 1}}); err != nil {
		t.Fatal(err)
	}
	refused := w.Submit(w.Visit("evt-3", "", "run-4")).MutationID

	list, err := w.Gate.EventMutations(ctx, gatetest.Care, ref, 0)
	wantIDs(t, "of the event", list, err, create.MutationID, other.MutationID, dropped)
	list, err = w.Gate.EventMutations(ctx, gatetest.Care, ref, 2)
	wantIDs(t, "of the event, two", list, err, create.MutationID, other.MutationID)
	list, err = w.Gate.MutationsAfter(ctx, gatetest.Care, 0, 0, 100)
	wantIDs(t, "applied", list, err, create.MutationID, other.MutationID, updated)
	list, err = w.Gate.MutationsAfter(ctx, gatetest.Care, create.MutationID, dropped, 100)
	wantIDs(t, "applied between", list, err, other.MutationID)
	list, err = w.Gate.MutationsOf(ctx, gatetest.Care, []int64{refused, create.MutationID, 999})
	wantIDs(t, "by id", list, err, create.MutationID, refused)
	list, err = w.Gate.EntityMutations(ctx, gatetest.Care, "visit", create.ExternalRef, 0, 0)
	wantIDs(t, "of the entity", list, err, create.MutationID, updated)
	list, err = w.Gate.EntityMutations(ctx, gatetest.Care, "visit", create.ExternalRef, create.MutationID, 0)
	wantIDs(t, "of the entity, later", list, err, updated)
	for _, id := range []string{"", "V-none", "a\x00b"} {
		if list, err := w.Gate.EntityMutations(ctx, gatetest.Care, "visit", id, 0, 0); err != nil || len(list) != 0 {
			t.Errorf("of %q: %v, %v", id, ids(list), err)
		}
	}
	if list, err := w.Gate.MutationsOf(ctx, "other", []int64{create.MutationID}); err != nil || len(list) != 0 {
		t.Errorf("another integration's: %v, %v", ids(list), err)
	}
}

func TestEntitiesAreFound(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	_, err := w.Pool.Exec(t.Context(), `
		insert into entities (integration, type, id, version, state, subject, updated_at)
		select 'care', 'visit', id, 1, '{}', subject, $1
		from (values ('V-1', 'C-1'), ('V-10', 'C-10'), ('V-2', 'C-1'), ('C-1', 'V-10'), ('X%', '100%'), ('Ém', 'Zoë')) v(id, subject)`, gatetest.Start)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{
		"V-1": {"V-1", "C-1", "V-10"}, "C-1": {"C-1", "V-1", "V-2", "V-10"}, "V-10": {"C-1", "V-10"},
		"X": {"X%"}, "%": nil, "100%": {"X%"}, "Zo": {"Ém"}, "É": {"Ém"}, "": nil, "\xff": nil, "V_": nil,
	}
	for query, want := range tests {
		found, err := w.Gate.SearchEntities(t.Context(), gatetest.Care, query, 0)
		if err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		var got []string
		for _, p := range found {
			got = append(got, p.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("search %q (-want +got):\n%s", query, diff)
		}
	}
	p, err := w.Gate.Projected(t.Context(), gatetest.Care, "visit", "V-10")
	want := gate.Projected{Integration: gatetest.Care, Type: "visit", ID: "V-10", Version: 1, State: []byte(`{}`), Subject: "C-10", UpdatedAt: gatetest.Start}
	if diff := cmp.Diff(want, p); err != nil || diff != "" {
		t.Errorf("%v; entity (-want +got):\n%s", err, diff)
	}
	for _, id := range []string{"V-99", "a\x00"} {
		if _, err := w.Gate.Projected(t.Context(), gatetest.Care, "visit", id); !errors.Is(err, gate.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestDeliveriesAreListed(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	raw := fmt.Sprintf(`{"account":"home","event_id":"evt-1","occurred_at":%q,"kind":"roster"}`, gatetest.Start.Format(time.RFC3339))
	for range 2 {
		if _, err := w.Gate.Receive(t.Context(), gate.Agent("provider"), gatetest.Care, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.Gate.Deliveries(t.Context(), gatetest.Care, gate.EventRef{Account: "home", ID: "evt-1"})
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if list[0].Disposition != gate.Stored || list[1].Disposition != gate.Duplicate || list[1].Reason != gate.ReasonReplay || string(list[0].Payload) != raw {
		t.Errorf("deliveries %+v", list)
	}
	one, err := w.Gate.Delivery(t.Context(), list[1].ID)
	if diff := cmp.Diff(list[1], one); err != nil || diff != "" {
		t.Errorf("%v; one against its list:\n%s", err, diff)
	}
	if _, err := w.Gate.Delivery(t.Context(), 999); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("no such delivery: %v", err)
	}
	groups, err := w.Gate.Drops(t.Context(), gatetest.Care, 0, 0)
	if err != nil || len(groups) != 1 || groups[0].Deliveries != 1 || groups[0].Mutations != 0 {
		t.Errorf("drops %+v, %v", groups, err)
	}
}

func TestReadsSayThatTheStoreIsDown(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	cfg := w.Pool.Config()
	cfg.ConnConfig.Host, cfg.ConnConfig.Fallbacks = t.TempDir(), nil
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	g := w.NewGate(func(c *gate.Config) { c.Pool = pool })
	calls := map[string]func() error{
		"mutation": func() error { _, err := g.Mutation(t.Context(), 1); return err },
		"items":    func() error { _, err := g.Items(t.Context(), gate.ItemFilter{Integration: gatetest.Care}); return err },
		"count":    func() error { _, err := g.CountPairs(t.Context(), gate.PairFilter{}); return err },
		"next":     func() error { _, _, _, err := g.NextItem(t.Context(), gatetest.Care, 0); return err },
		"drops":    func() error { _, err := g.Drops(t.Context(), gatetest.Care, 0, 0); return err },
		"release":  func() error { _, err := g.Release(t.Context(), anna, 1, 1, "yes"); return err },
		"finish":   func() error { return g.FinishRelease(t.Context(), 1) },
		"token":    func() error { _, _, err := g.ResolveToken(t.Context(), "slu_x"); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, gate.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokens(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	token, err := w.Gate.CreateToken(t.Context(), anna, gatetest.Care, "planner")
	if err != nil || len(token) != len("slu_")+43 {
		t.Fatalf("token %q, %v", token, err)
	}
	agent, integration, err := w.Gate.ResolveToken(t.Context(), token)
	if err != nil || agent != "planner" || integration != gatetest.Care {
		t.Errorf("resolved %q of %q, %v", agent, integration, err)
	}
	for _, bad := range []string{"", "slu_", token[:len(token)-1], token + "A", "x" + token, "slu_\x00"} {
		if _, _, err := w.Gate.ResolveToken(t.Context(), bad); !errors.Is(err, gate.ErrNotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var leaks int
	err = w.Pool.QueryRow(t.Context(), `
		select count(*) from (select encode(token_hash, 'escape') as s from agent_tokens union all select encode(detail, 'escape') from audit_records) x
		where position($1 in s) > 0`, token[4:]).Scan(&leaks)
	if err != nil || leaks != 0 {
		t.Errorf("the token itself is kept in %d places (%v)", leaks, err)
	}
	if n, err := w.Gate.RevokeTokens(t.Context(), anna, gatetest.Care, "planner"); err != nil || n != 1 {
		t.Errorf("revoked %d, %v", n, err)
	}
	if _, _, err := w.Gate.ResolveToken(t.Context(), token); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("a revoked token: %v", err)
	}
	if _, err := w.Gate.RevokeTokens(t.Context(), anna, gatetest.Care, "planner"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
	if _, err := w.Gate.CreateToken(t.Context(), anna, "nowhere", "planner"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("for an unknown integration: %v", err)
	}
	if _, err := w.Gate.CreateToken(t.Context(), anna, gatetest.Care, "a\x00"); !errors.Is(err, gate.ErrMalformed) {
		t.Errorf("for an agent without a proper name: %v", err)
	}
	if diff := cmp.Diff([]string{"token.created by anna", "token.revoked by anna"}, actions(t, w, "agent/planner")); diff != "" {
		t.Errorf("audit record (-want +got):\n%s", diff)
	}
}
