package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/handlers"
	"sluis/web"
)

// agentGate answers as a test wants, and keeps what it was asked.
type agentGate struct {
	decision gate.Decision
	receipt  gate.Receipt
	events   []gate.InboxEvent
	entity   gate.Projected
	err      error

	by      gate.Actor
	request gate.Request
	raw     string
	key     gate.Key
	closed  gate.EventRef
	run     string
	after   int64
	limit   int
	name    string
}

func (g *agentGate) Submit(_ context.Context, by gate.Actor, r gate.Request) (gate.Decision, error) {
	g.by, g.request = by, r
	return g.decision, g.err
}

func (g *agentGate) Receive(_ context.Context, by gate.Actor, _ string, raw []byte) (gate.Receipt, error) {
	g.by, g.raw = by, string(raw)
	return g.receipt, g.err
}

func (g *agentGate) KeyStatus(_ context.Context, _ string, key gate.Key) (gate.Decision, error) {
	g.key = key
	return g.decision, g.err
}

func (g *agentGate) CloseEvent(_ context.Context, by gate.Actor, _ string, ref gate.EventRef, run string) error {
	g.by, g.closed, g.run = by, ref, run
	return g.err
}

func (g *agentGate) Events(_ context.Context, _ string, after int64, limit int) ([]gate.InboxEvent, error) {
	g.after, g.limit = after, limit
	return g.events, g.err
}

func (g *agentGate) Projected(_ context.Context, _, typ, id string) (gate.Projected, error) {
	g.name = typ + "/" + id
	return g.entity, g.err
}

// asAgent sends a request with the token of the care integration's agent.
func asAgent(t *testing.T, g *agentGate, method, path, token, body string) *httptest.ResponseRecorder {
	t.Helper()
	server, err := web.NewAgents(web.Config{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() time.Time { return time.Unix(0, 0) },
		Principal: func(_ context.Context, token string) (web.Principal, error) {
			switch token {
			case "good":
				return web.Principal{Agent: "planner", Integration: "care"}, nil
			case "down":
				return web.Principal{}, fmt.Errorf("secret host: %w", gate.ErrUnavailable)
			}
			return web.Principal{}, web.ErrUnknownToken
		},
	}, handlers.Agents(g))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("X-Request-Id", "request-1")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

const (
	mutationsPath = "/v1/integrations/care/mutations"
	goodMutation  = `{"event":{"account":"home","event_id":"evt-1","occurred_at":"2025-10-27T08:00:00Z"},"effect":"visit/1","last":true,` +
		`"run":"run-1","mutation":{"op":"update","type":"visit","id":"V-1","subject":"C-1","body":{"nurse":"N-1"}},` +
		`"basis":{"type":"visit","id":"V-1","version":3},"evidence":["D-1"]}`
)

var (
	agentKey  = gate.Key{1, 2}
	firstSeen = time.Date(2025, 10, 27, 8, 0, 0, 0, time.UTC)
)

// members is a JSON document with the members that a case does not speak of
// taken out.
func members(t *testing.T, w *httptest.ResponseRecorder, ignore ...string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	for _, name := range ignore {
		delete(doc, name)
	}
	return doc
}

func TestSubmitDecisions(t *testing.T) {
	key := agentKey.String()
	for _, c := range []struct {
		name     string
		decision gate.Decision
		status   int
		replayed string
		want     map[string]any
	}{
		{"forward", gate.Decision{Verdict: gate.Forward, Key: agentKey, State: gate.Committed, ExternalRef: "V-1", FirstSeen: firstSeen, MutationID: 12},
			200, "", map[string]any{"decision": "forward", "key": key, "state": "committed", "external_ref": "V-1", "first_seen": "2025-10-27T08:00:00Z", "mutation": "M-12"}},
		{"refused by the target", gate.Decision{Verdict: gate.Forward, Key: agentKey, State: gate.StRefused, Detail: "no such nurse"},
			200, "", map[string]any{"decision": "forward", "key": key, "state": "refused", "detail": "no such nurse"}},
		{"drop", gate.Decision{Verdict: gate.Drop, Reason: gate.ReasonReplay, Key: agentKey, State: gate.Committed},
			200, "true", map[string]any{"decision": "drop", "reason": "replay", "key": key, "state": "committed"}},
		{"drop of what is unknown", gate.Decision{Verdict: gate.Drop, Reason: gate.ReasonReplay, Key: agentKey, State: gate.Unknown},
			202, "true", map[string]any{"decision": "drop", "reason": "replay", "key": key, "state": "unknown"}},
		{"quarantine", gate.Decision{Verdict: gate.Quarantine, Reason: gate.ReasonSkew, Key: agentKey, Item: 17},
			202, "", map[string]any{"decision": "quarantine", "reason": "skew", "key": key, "item": "Q-17"}},
		{"quarantine without a key", gate.Decision{Verdict: gate.Quarantine, Reason: gate.ReasonMissingEventID, Item: 18},
			202, "", map[string]any{"decision": "quarantine", "reason": "missing_event_id", "item": "Q-18"}},
		{"unknown", gate.Decision{Verdict: gate.Forward, Reason: gate.ReasonUncertainOutcome, Key: agentKey, State: gate.Unknown},
			202, "", map[string]any{"decision": "forward", "reason": "uncertain_outcome", "key": key, "state": "unknown"}},
		{"manual", gate.Decision{Verdict: gate.Forward, Reason: gate.ReasonUncertainOutcome, Key: agentKey, State: gate.Manual},
			202, "", map[string]any{"decision": "forward", "reason": "uncertain_outcome", "key": key, "state": "manual"}},
	} {
		w := asAgent(t, &agentGate{decision: c.decision}, "POST", mutationsPath, "good", goodMutation)
		if w.Code != c.status || w.Header().Get("Idempotent-Replayed") != c.replayed || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
			t.Errorf("%s: %d %v", c.name, w.Code, w.Header())
		}
		if diff := cmp.Diff(c.want, members(t, w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestSubmitReadsTheWholeRequest(t *testing.T) {
	g := &agentGate{decision: gate.Decision{Verdict: gate.Forward}}
	asAgent(t, g, "POST", mutationsPath, "good", goodMutation)
	want := gate.Request{
		Integration: "care", Event: gate.EventRef{Account: "home", ID: "evt-1", OccurredAt: "2025-10-27T08:00:00Z"},
		Effect: "visit/1", Last: true, Agent: "planner", Run: "run-1",
		Mutation: gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: "V-1", Subject: "C-1", Body: json.RawMessage(`{"nurse":"N-1"}`)},
		Basis:    &gate.Basis{Type: "visit", ID: "V-1", Version: 3}, Evidence: []string{"D-1"},
	}
	if diff := cmp.Diff(want, g.request); diff != "" || g.by != gate.Agent("planner") {
		t.Errorf("by %+v (-want +got):\n%s", g.by, diff)
	}
}

// Every refusal of the agents' API: status, Retry-After, and what the problem
// document says; never a word of the cause.
func TestAgentProblems(t *testing.T) {
	const store, flying = "The gate's store is not available", "The same mutation is being sent now"
	key := agentKey.String()
	inFlight := gate.Decision{Verdict: gate.Drop, Reason: gate.ReasonReplay, Key: agentKey, State: gate.InFlight}
	secret := func(err error) error { return fmt.Errorf("secret host 10.0.0.1: %w", err) }
	malformed := map[string]any{"title": "Malformed request", "reason": "malformed_body"}
	for _, c := range []struct {
		name, method, path, token, body string
		gate                            agentGate
		status                          int
		retry                           string
		want                            map[string]any
	}{
		{"no token", "POST", mutationsPath, "", goodMutation, agentGate{}, 401, "", map[string]any{"title": "Unauthorized"}},
		{"unknown token", "POST", mutationsPath, "bad", goodMutation, agentGate{}, 401, "", map[string]any{"title": "Unauthorized"}},
		{"token of another integration", "POST", "/v1/integrations/feeds/mutations", "good", goodMutation, agentGate{}, 403, "", map[string]any{"title": "Forbidden"}},
		{"the token cannot be checked", "POST", mutationsPath, "down", goodMutation, agentGate{}, 503, "2", map[string]any{"title": "Service Unavailable"}},
		{"no path", "GET", "/v1/nothing", "good", "", agentGate{}, 404, "", map[string]any{"title": "Not Found"}},
		{"wrong method", "PUT", mutationsPath, "good", "", agentGate{}, 405, "", map[string]any{"title": "Method Not Allowed"}},
		{"no JSON", "POST", mutationsPath, "good", "{", agentGate{}, 400, "", malformed},
		{"NUL", "POST", mutationsPath, "good", "\x00", agentGate{}, 400, "", malformed},
		{"misspelt field", "POST", mutationsPath, "good", `{"event":{},"mutation":{},"efect":"x"}`, agentGate{}, 400, "", malformed},
		{"doubled field", "POST", mutationsPath, "good", `{"event":{},"event":{},"mutation":{}}`, agentGate{}, 400, "", malformed},
		{"deep", "POST", mutationsPath, "good", `{"event":` + strings.Repeat("[", 5000), agentGate{}, 400, "", malformed},
		{"no body for a create", "POST", mutationsPath, "good", `{"event":{},"mutation":{"op":"create"}}`, agentGate{}, 400, "", malformed},
		{"the gate finds it malformed", "POST", mutationsPath, "good", goodMutation, agentGate{err: gate.ErrMalformed}, 400, "", malformed},
		{"larger than a request may be", "POST", mutationsPath, "good", goodMutation + strings.Repeat(" ", 400<<10), agentGate{}, 413, "", map[string]any{"title": "Request Entity Too Large"}},
		{"larger than any body", "POST", "/v1/integrations/care/events", "good", strings.Repeat("x", 1<<20+1), agentGate{}, 413, "", map[string]any{"title": "Request Entity Too Large"}},
		{"no such integration", "POST", mutationsPath, "good", goodMutation, agentGate{err: secret(gate.ErrNotFound)}, 404, "", map[string]any{"title": "Not Found"}},
		{"in flight", "POST", mutationsPath, "good", goodMutation, agentGate{decision: inFlight, err: secret(gate.ErrInFlight)}, 409, "1",
			map[string]any{"title": flying, "key": key, "state": "in_flight", "reason": "replay", "new_key_is_safe": false}},
		{"another mutation under the key", "POST", mutationsPath, "good", goodMutation,
			agentGate{decision: gate.Decision{Verdict: gate.Quarantine, Reason: gate.ReasonKeyConflict, Key: agentKey, State: gate.Committed, Item: 4}}, 422, "",
			map[string]any{"title": "The key was used for another mutation", "key": key, "state": "committed", "reason": "key_conflict", "item": "Q-4", "new_key_is_safe": false}},
		{"store down", "POST", mutationsPath, "good", goodMutation, agentGate{decision: gate.Decision{Key: agentKey}, err: secret(gate.ErrUnavailable)}, 503, "2",
			map[string]any{"title": store, "key": key, "new_key_is_safe": false}},
		{"sent, not settled", "POST", mutationsPath, "good", goodMutation,
			agentGate{decision: gate.Decision{Verdict: gate.Forward, Key: agentKey, State: gate.InFlight}, err: secret(gate.ErrUnavailable)}, 503, "2",
			map[string]any{"title": store, "key": key, "state": "in_flight", "new_key_is_safe": false}},
		{"our own fault", "POST", mutationsPath, "good", goodMutation, agentGate{err: secret(errors.New("bug"))}, 500, "", map[string]any{"title": "Internal Server Error"}},
		{"delivery while the store is down", "POST", "/v1/integrations/care/events", "good", "{}", agentGate{err: secret(gate.ErrUnavailable)}, 503, "2",
			map[string]any{"title": store, "new_key_is_safe": false}},
		{"key that is none", "GET", mutationsPath + "/xyz", "good", "", agentGate{}, 400, "", malformed},
		{"key that nobody has", "GET", mutationsPath + "/" + key, "good", "", agentGate{err: secret(gate.ErrNotFound)}, 404, "", map[string]any{"title": "Not Found"}},
		{"entity that nobody has", "GET", "/v1/integrations/care/entities/visit/V-1", "good", "", agentGate{err: secret(gate.ErrNotFound)}, 404, "", map[string]any{"title": "Not Found"}},
		{"close by another run", "POST", "/v1/integrations/care/events/close", "good", `{"event_id":"e","run":"r"}`, agentGate{err: secret(gate.ErrStale)}, 409, "", map[string]any{"title": "Conflict"}},
		{"close without a run", "POST", "/v1/integrations/care/events/close", "good", `{"event_id":"e"}`, agentGate{}, 400, "", malformed},
		{"events after a word", "GET", "/v1/integrations/care/events?after=x", "good", "", agentGate{}, 400, "", malformed},
		{"events before the first", "GET", "/v1/integrations/care/events?after=-1", "good", "", agentGate{}, 400, "", malformed},
		{"events of another state", "GET", "/v1/integrations/care/events?state=applied", "good", "", agentGate{}, 400, "", malformed},
	} {
		w := asAgent(t, &c.gate, c.method, c.path, c.token, c.body)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retry || w.Header().Get("Content-Type") != web.ProblemType {
			t.Errorf("%s: %d %v %s", c.name, w.Code, w.Header(), w.Body)
			continue
		}
		doc := members(t, w, "detail")
		c.want["type"], c.want["status"], c.want["instance"] = "about:blank", float64(c.status), "urn:sluis:request:request-1"
		if diff := cmp.Diff(c.want, doc); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if (c.status == 401) != (w.Header().Get("WWW-Authenticate") != "") || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %v %s", c.name, w.Header(), w.Body)
		}
	}
}

func TestDeliveriesAreReceipted(t *testing.T) {
	for _, c := range []struct {
		receipt gate.Receipt
		want    map[string]any
	}{
		{gate.Receipt{ID: 3, Disposition: gate.Stored, HandOn: true, FirstSeen: firstSeen},
			map[string]any{"receipt": "D-3", "disposition": "stored", "hand_on": true, "first_seen": "2025-10-27T08:00:00Z"}},
		{gate.Receipt{ID: 4, Disposition: gate.Duplicate, Reason: gate.ReasonReplay, FirstSeen: firstSeen},
			map[string]any{"receipt": "D-4", "disposition": "duplicate", "reason": "replay", "hand_on": false, "first_seen": "2025-10-27T08:00:00Z"}},
		{gate.Receipt{ID: 5, Disposition: gate.Quarantined, Reason: gate.ReasonMalformedBody, Item: 9, FirstSeen: firstSeen},
			map[string]any{"receipt": "D-5", "disposition": "quarantined", "reason": "malformed_body", "item": "Q-9", "hand_on": false, "first_seen": "2025-10-27T08:00:00Z"}},
	} {
		g := &agentGate{receipt: c.receipt}
		w := asAgent(t, g, "POST", "/v1/integrations/care/events", "good", "not {JSON")
		if diff := cmp.Diff(c.want, members(t, w)); diff != "" || w.Code != 202 || g.raw != "not {JSON" || g.by != gate.Agent("planner") {
			t.Errorf("%d %q by %+v (-want +got):\n%s", w.Code, g.raw, g.by, diff)
		}
	}
}

func TestAgentReads(t *testing.T) {
	g := &agentGate{decision: gate.Decision{Verdict: gate.Forward, Key: agentKey, State: gate.Unknown, Reason: gate.ReasonUncertainOutcome, MutationID: 7}}
	w := asAgent(t, g, "GET", mutationsPath+"/"+agentKey.String(), "good", "")
	want := map[string]any{"decision": "forward", "reason": "uncertain_outcome", "key": agentKey.String(), "state": "unknown", "mutation": "M-7"}
	if diff := cmp.Diff(want, members(t, w)); diff != "" || w.Code != http.StatusOK || g.key != agentKey {
		t.Errorf("key: %d (-want +got):\n%s", w.Code, diff)
	}

	g = &agentGate{events: []gate.InboxEvent{{Seq: 9, Event: gate.EventRef{Account: "home", ID: "e", OccurredAt: "then"}, Kind: "k", ReceivedAt: firstSeen, Payload: json.RawMessage(`{"a":1}`)}}}
	w = asAgent(t, g, "GET", "/v1/integrations/care/events?state=stored&after=4&limit=9999", "good", "")
	want = map[string]any{"next": 9.0, "events": []any{map[string]any{"seq": 9.0, "account": "home", "event_id": "e", "occurred_at": "then",
		"kind": "k", "received_at": "2025-10-27T08:00:00Z", "payload": map[string]any{"a": 1.0}}}}
	if diff := cmp.Diff(want, members(t, w)); diff != "" || w.Code != http.StatusOK || g.after != 4 || g.limit != 500 {
		t.Errorf("events: %d after %d limit %d (-want +got):\n%s", w.Code, g.after, g.limit, diff)
	}
	w = asAgent(t, &agentGate{}, "GET", "/v1/integrations/care/events?after=4", "good", "")
	if diff := cmp.Diff(map[string]any{"next": 4.0, "events": []any{}}, members(t, w)); diff != "" {
		t.Errorf("no events (-want +got):\n%s", diff)
	}

	g = &agentGate{entity: gate.Projected{Type: "visit", ID: "V/1", Version: 2, State: json.RawMessage(`{"nurse":"N-1"}`), UpdatedAt: firstSeen}}
	w = asAgent(t, g, "GET", "/v1/integrations/care/entities/visit/V%2F1", "good", "")
	want = map[string]any{"type": "visit", "id": "V/1", "version": 2.0, "deleted": false, "state": map[string]any{"nurse": "N-1"}, "updated_at": "2025-10-27T08:00:00Z"}
	if diff := cmp.Diff(want, members(t, w)); diff != "" || w.Code != http.StatusOK || g.name != "visit/V/1" {
		t.Errorf("entity %q: %d (-want +got):\n%s", g.name, w.Code, diff)
	}

	g = &agentGate{}
	w = asAgent(t, g, "POST", "/v1/integrations/care/events/close", "good", `{"account":"home","event_id":"e","occurred_at":"then","run":"r"}`)
	if w.Code != http.StatusNoContent || w.Body.Len() != 0 || g.closed != (gate.EventRef{Account: "home", ID: "e", OccurredAt: "then"}) || g.run != "r" {
		t.Errorf("close: %d %s %+v", w.Code, w.Body, g)
	}
}
