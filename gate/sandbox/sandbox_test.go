package sandbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/sandbox"
)

var start = time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC)

// care is a running system and its clock.
type care struct {
	*sandbox.System
	t     *testing.T
	dir   string
	clock *gate.ManualClock
	url   string
}

func open(t *testing.T, dir string) *care {
	t.Helper()
	c := &care{t: t, dir: dir, clock: gate.NewManualClock(start)}
	sys, err := sandbox.Open(dir, sandbox.Options{Clock: c.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	c.System = sys
	srv := httptest.NewServer(sys.Handler())
	t.Cleanup(func() { srv.Close(); _ = sys.Close() })
	c.url = srv.URL
	return c
}

// reply is what a request got.
type reply struct {
	Status   int
	Replayed bool
	Body     map[string]any
}

func (c *care) do(method, path, body string, headers ...string) (reply, error) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	req.GetBody = nil
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	r := reply{Status: resp.StatusCode, Replayed: resp.Header.Get("Idempotent-Replayed") == "true"}
	if len(raw) > 0 {
		if jerr := json.Unmarshal(raw, &r.Body); jerr != nil {
			return r, fmt.Errorf("%s: %w", raw, jerr)
		}
	}
	return r, err
}

func (c *care) must(status int, method, path, body string, headers ...string) reply {
	c.t.Helper()
	r, err := c.do(method, path, body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	if r.Status != status {
		c.t.Fatalf("%s %s: status %d, want %d: %v", method, path, r.Status, status, r.Body)
	}
	return r
}

func TestChangesAreVersionedAndSigned(t *testing.T) {
	c := open(t, t.TempDir())
	made := c.must(201, "POST", "/v1/visit", `{"nurse":"R-07","note":"a<b"}`, "X-Actor", "agent/roster")
	want := map[string]any{
		"type": "visit", "id": "V-000001", "version": 1.0, "updated_by": "agent/roster",
		"updated_at": "2025-10-26T00:00:00Z", "state": map[string]any{"nurse": "R-07", "note": "a<b"},
	}
	if diff := cmp.Diff(want, made.Body); diff != "" {
		t.Fatalf("created (-want +got):\n%s", diff)
	}
	c.clock.Advance(time.Minute)
	got := c.must(200, "PATCH", "/v1/visit/V-000001", `{"note":null,"door":"1234"}`, "If-Match", `"1"`, "X-Actor", "anna")
	if v := got.Body["version"]; v != 2.0 {
		t.Errorf("version %v after a patch, want 2", v)
	}
	if diff := cmp.Diff(map[string]any{"nurse": "R-07", "door": "1234"}, got.Body["state"]); diff != "" {
		t.Errorf("merged state (-want +got):\n%s", diff)
	}
	c.must(412, "PATCH", "/v1/visit/V-000001", `{"door":"9"}`, "If-Match", `"1"`)
	c.must(412, "DELETE", "/v1/visit/V-000001", "", "If-Match", `"1"`)
	c.must(200, "DELETE", "/v1/visit/V-000001", "", "If-Match", `"2"`)
	c.must(404, "GET", "/v1/visit/V-000001", "")
	c.must(404, "PATCH", "/v1/visit/V-000001", `{}`)
	if r := c.must(201, "POST", "/v1/visit/V-000001", `{}`); r.Body["version"] != 4.0 {
		t.Errorf("recreated at version %v, want 4: versions never repeat", r.Body["version"])
	}
	c.must(409, "POST", "/v1/visit/V-000001", `{}`)
	if r := c.must(201, "POST", "/v1/visit", `{}`); r.Body["id"] != "V-000002" {
		t.Errorf("next id %v, want V-000002", r.Body["id"])
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	c := open(t, t.TempDir())
	for name, r := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
	}{
		"not an object":   {"POST", "/v1/visit", `[]`, nil, 400},
		"duplicate name":  {"POST", "/v1/visit", `{"a":1,"a":2}`, nil, 400},
		"not JSON":        {"POST", "/v1/visit", `{`, nil, 400},
		"bad type":        {"POST", "/v1/Visit!", `{}`, nil, 400},
		"reserved type":   {"POST", "/v1/live", `{}`, nil, 400},
		"bad id":          {"POST", "/v1/visit/a%20b", `{}`, nil, 400},
		"bad version":     {"PATCH", "/v1/visit/V-1", `{}`, []string{"If-Match", `"x"`}, 400},
		"open key string": {"POST", "/v1/visit", `{}`, []string{"Idempotency-Key", `"abc`}, 400},
		"long key":        {"POST", "/v1/visit", `{}`, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400},
		"too long":        {"POST", "/v1/visit", `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413},
		"bad limit":       {"GET", "/v1/live?limit=0", "", nil, 400},
		"bad cursor":      {"GET", "/v1/live?after=zzz", "", nil, 400},
		"unknown fault":   {"POST", "/v1/faults", `[{"kind":"gremlin"}]`, nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			c := &care{System: c.System, t: t, url: c.url}
			c.must(r.status, r.method, r.path, r.body, r.headers...)
		})
	}
	if n := len(c.Snapshot()); n != 0 {
		t.Errorf("%d entities after refusals", n)
	}
}

func TestKeyMakesAChangeSafeToRepeat(t *testing.T) {
	c := open(t, t.TempDir())
	first := c.must(201, "POST", "/v1/visit", `{"a":1,"b":2}`, "Idempotency-Key", `"k\"1"`)
	again := c.must(201, "POST", "/v1/visit", `{"b":2, "a":1}`, "Idempotency-Key", `"k\"1"`)
	if !again.Replayed || first.Replayed {
		t.Errorf("replayed: first %v, again %v", first.Replayed, again.Replayed)
	}
	if diff := cmp.Diff(first.Body, again.Body); diff != "" {
		t.Errorf("answers differ (-first +again):\n%s", diff)
	}
	for path, body := range map[string]string{"/v1/visit": `{"a":2}`, "/v1/client": `{"a":1,"b":2}`} {
		if r := c.must(422, "POST", path, body, "Idempotency-Key", `"k\"1"`); r.Body["type"] != sandbox.ProblemKeyReused {
			t.Errorf("problem type %v", r.Body["type"])
		}
	}
	c.must(404, "PATCH", "/v1/visit/V-9", `{}`, "Idempotency-Key", "bare")
	c.must(201, "POST", "/v1/visit/V-9", `{}`, "Idempotency-Key", "bare") // a refusal is not remembered
	if diff := cmp.Diff(map[string]int{`k"1`: 4, "bare": 2}, c.Sends()); diff != "" {
		t.Errorf("sends (-want +got):\n%s", diff)
	}
	look := c.must(200, "GET", "/v1/keys/bare", "")
	if look.Body["applied"] != true || look.Body["ref"] != "V-9" {
		t.Errorf("look-up: %v", look.Body)
	}
	if r := c.must(404, "GET", "/v1/keys/never", ""); r.Body["known_since"] != "1970-01-01T00:00:00Z" {
		t.Errorf("known_since %v, want the epoch: nothing was forgotten yet", r.Body["known_since"])
	}
}

func TestForgottenKeysAreOwnedUpTo(t *testing.T) {
	c := open(t, t.TempDir())
	c.must(201, "POST", "/v1/visit", `{}`, "Idempotency-Key", "old")
	c.clock.Advance(25 * time.Hour)
	c.must(201, "POST", "/v1/visit", `{}`, "Idempotency-Key", "new")
	r := c.must(404, "GET", "/v1/keys/old", "")
	if got := r.Body["known_since"]; got != "2025-10-26T00:00:00.000001Z" {
		t.Errorf("known_since %v, want just after the expired key", got)
	}
	c.must(200, "GET", "/v1/keys/new", "")
	c.must(204, "POST", "/v1/faults", `[{"kind":"forget_keys"}]`)
	if r := c.must(404, "GET", "/v1/keys/new", ""); r.Body["known_since"] != "2025-10-27T01:00:00Z" {
		t.Errorf("known_since %v, want the moment of forgetting", r.Body["known_since"])
	}
	if d := c.DoubleApplied(); len(d) != 0 {
		t.Fatalf("double applied %v before anything was", d)
	}
	c.must(201, "POST", "/v1/visit", `{}`, "Idempotency-Key", "new")
	if diff := cmp.Diff([]string{"new"}, c.DoubleApplied()); diff != "" {
		t.Errorf("double applied (-want +got):\n%s", diff)
	}
	health := c.must(200, "GET", "/v1/health", "")
	if diff := cmp.Diff([]any{"new"}, health.Body["double_applied"]); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

func TestStateSurvivesWithoutAClose(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	if err := c.Seed([]gate.Entity{{Type: "visit", ID: "V-000040", State: []byte(`{"note":"<&>"}`), UpdatedBy: "planner"}}); err != nil {
		t.Fatal(err)
	}
	c.must(201, "POST", "/v1/visit", `{"n":1}`, "Idempotency-Key", "k1")
	c.must(200, "DELETE", "/v1/visit/V-000041", "", "Idempotency-Key", "k2")
	c.must(204, "POST", "/v1/faults", `[{"kind":"forget_keys","match":{"key":"k1"}}]`)
	c.must(201, "POST", "/v1/visit", `{"n":1}`, "Idempotency-Key", "k1")
	want := c.Snapshot()

	// What a killed process leaves: the file as it is, and perhaps half a line.
	copied := t.TempDir()
	raw, err := os.ReadFile(filepath.Join(dir, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	whole := len(raw)
	raw = append(raw, `{"op":"put","at":"2025-`...)
	if err := os.WriteFile(filepath.Join(copied, "journal.jsonl"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, copied)
	if diff := cmp.Diff(want, d.Snapshot()); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"k1"}, d.DoubleApplied()); diff != "" {
		t.Errorf("double applied after reopening (-want +got):\n%s", diff)
	}
	if r := d.must(200, "DELETE", "/v1/visit/V-000041", "", "Idempotency-Key", "k2"); !r.Replayed {
		t.Error("the key's answer was lost")
	}
	if r := d.must(201, "POST", "/v1/visit", `{}`); r.Body["id"] != "V-000043" {
		t.Errorf("next id %v, want V-000043: ids are never given twice", r.Body["id"])
	}
	now, err := os.ReadFile(filepath.Join(copied, "journal.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now[:whole], raw[:whole]) || bytes.Contains(now, []byte(`"2025-{`)) {
		t.Error("the torn line was not cut off cleanly")
	}
	if _, err := sandbox.Open(copied, sandbox.Options{Clock: c.clock.Now}); err == nil {
		t.Error("two systems opened one journal")
	}
	if err := d.Reset(); err != nil {
		t.Fatal(err)
	}
	if n, s := len(d.Snapshot()), len(d.Sends()); n != 0 || s != 0 {
		t.Errorf("after a reset: %d entities, %d keys", n, s)
	}
}

func TestFaultsStrikeWhereTheySay(t *testing.T) {
	for name, tc := range map[string]struct {
		fault   sandbox.Fault
		status  int // 0: no answer
		applied bool
	}{
		"error before":  {sandbox.Fault{Kind: sandbox.ErrorBefore, Count: 1}, 500, false},
		"error after":   {sandbox.Fault{Kind: sandbox.ErrorAfter, Count: 1}, 500, true},
		"cut after":     {sandbox.Fault{Kind: sandbox.CutAfter, Count: 1}, 0, true},
		"refusal":       {sandbox.Fault{Kind: sandbox.Refuse, Status: 403, Count: 1}, 403, false},
		"latency":       {sandbox.Fault{Kind: sandbox.LatencyBefore, DurationMS: 5, Count: 1}, 201, true},
		"latency after": {sandbox.Fault{Kind: sandbox.LatencyAfter, DurationMS: 5, Count: 1}, 201, true},
		"other type":    {sandbox.Fault{Kind: sandbox.ErrorBefore, Match: sandbox.Match{Type: "client"}}, 201, true},
		"other key":     {sandbox.Fault{Kind: sandbox.ErrorBefore, Match: sandbox.Match{Key: "other"}}, 201, true},
		"other op":      {sandbox.Fault{Kind: sandbox.ErrorBefore, Match: sandbox.Match{Op: "delete"}}, 201, true},
		"this key":      {sandbox.Fault{Kind: sandbox.ErrorBefore, Count: 1, Match: sandbox.Match{Key: "k", Op: "create"}}, 500, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, t.TempDir())
			if err := c.SetFaults([]sandbox.Fault{tc.fault}); err != nil {
				t.Fatal(err)
			}
			r, err := c.do("POST", "/v1/visit", `{}`, "Idempotency-Key", "k")
			if r.Status != tc.status || (err != nil) != (tc.status == 0) {
				t.Errorf("status %d, error %v; want status %d", r.Status, err, tc.status)
			}
			if got := len(c.Snapshot()) == 1; got != tc.applied {
				t.Errorf("applied: %v, want %v", got, tc.applied)
			}
			again := c.must(201, "POST", "/v1/visit", `{}`, "Idempotency-Key", "k") // the fault is used up
			if again.Replayed != tc.applied {
				t.Errorf("second send replayed: %v, want %v", again.Replayed, tc.applied)
			}
		})
	}
}

func TestOneKeyFromManyAtOnceIsAppliedOnce(t *testing.T) {
	c := open(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			key := fmt.Sprint("k", i%4)
			if r, err := c.do("POST", "/v1/visit", `{"k":"`+key+`"}`, "Idempotency-Key", key); err != nil || r.Status != 201 {
				t.Errorf("status %d, error %v", r.Status, err)
			}
		})
	}
	wg.Wait()
	if n := len(c.Snapshot()); n != 4 {
		t.Errorf("%d visits, want 4", n)
	}
	if d := c.DoubleApplied(); len(d) != 0 {
		t.Errorf("double applied: %v", d)
	}
}

func TestLiveGoesThroughEverythingOnce(t *testing.T) {
	c := open(t, t.TempDir())
	var seed []gate.Entity
	for i := range 7 {
		seed = append(seed, gate.Entity{Type: []string{"visit", "client"}[i%2], ID: fmt.Sprintf("X-%d", i), State: []byte(`{}`)})
	}
	if err := c.Seed(seed); err != nil {
		t.Fatal(err)
	}
	var got []string
	after := ""
	for {
		page := c.must(200, "GET", "/v1/live?limit=2&after="+after, "")
		for _, e := range page.Body["entities"].([]any) {
			got = append(got, e.(map[string]any)["id"].(string))
		}
		if after = page.Body["next"].(string); after == "" {
			break
		}
		if after == "client/X-3" { // an entity that vanishes does not lose the place
			c.must(200, "DELETE", "/v1/client/X-3", "")
		}
	}
	if diff := cmp.Diff([]string{"X-1", "X-3", "X-5", "X-0", "X-2", "X-4", "X-6"}, got); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
}

func TestTokenIsAsked(t *testing.T) {
	sys, err := sandbox.Open(t.TempDir(), sandbox.Options{Clock: gate.NewManualClock(start).Now, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sys.Handler())
	defer srv.Close()
	c := &care{System: sys, t: t, url: srv.URL}
	c.must(401, "GET", "/v1/health", "")
	c.must(401, "GET", "/v1/health", "", "Authorization", "Bearer wrong")
	c.must(200, "GET", "/v1/health", "", "Authorization", "Bearer secret")
}
