package target_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/sandbox"
	"sluis/gate/target"
)

var start = time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC)

func dial(t *testing.T, c target.Config) *target.HTTP {
	t.Helper()
	h, err := target.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func care(t *testing.T, c target.Config) (*sandbox.System, *target.HTTP, *gate.ManualClock) {
	t.Helper()
	clock := gate.NewManualClock(start)
	sys, err := sandbox.Open(t.TempDir(), sandbox.Options{Clock: clock.Now, Token: c.Token})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sys.Handler())
	t.Cleanup(func() { srv.Close(); _ = sys.Close() })
	c.BaseURL = srv.URL
	return sys, dial(t, c), clock
}

func create(n byte) gate.Send {
	return gate.Send{
		Key:      gate.Key{n},
		Mutation: gate.Mutation{Op: gate.OpCreate, Type: "visit", Subject: "C-1", Body: json.RawMessage(`{"n":1}`)},
		Actor:    "agent/roster",
	}
}

func TestAppliesChangesInFull(t *testing.T) {
	for _, quoted := range []bool{true, false} {
		_, h, _ := care(t, target.Config{Token: "secret", KeyQuoted: quoted})
		ctx := t.Context()
		made := h.Apply(ctx, create(1))
		want := gate.Outcome{
			Class: gate.Applied, Ref: "V-000001", Status: 201, Detail: "201 Created",
			Entity: &gate.Entity{Type: "visit", ID: "V-000001", Version: 1, State: json.RawMessage(`{"n":1}`), UpdatedAt: start, UpdatedBy: "agent/roster"},
		}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Fatalf("create (-want +got):\n%s", diff)
		}
		if again := h.Apply(ctx, create(1)); !cmp.Equal(again.Entity, made.Entity) {
			t.Errorf("the same key again: %+v", again)
		}
		found := h.LookUp(ctx, gate.Key{1}, start)
		if found.Class != gate.Found || found.Ref != "V-000001" || !cmp.Equal(found.Entity, made.Entity) {
			t.Errorf("look-up: %+v", found)
		}
		one, two := int64(1), int64(2)
		update := gate.Send{Key: gate.Key{2}, IfVersion: &one,
			Mutation: gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: "V-000001", Body: json.RawMessage(`{"m":2}`)}}
		if out := h.Apply(ctx, update); out.Class != gate.Applied || string(out.Entity.State) != `{"m":2,"n":1}` {
			t.Errorf("update: %+v", out)
		}
		update.Key, update.Mutation.Body = gate.Key{3}, json.RawMessage(`{"m":3}`)
		if out := h.Apply(ctx, update); out.Class != gate.Refused || out.Status != 412 {
			t.Errorf("update of a moved entity: %+v", out)
		}
		remove := gate.Send{Key: gate.Key{4}, IfVersion: &two,
			Mutation: gate.Mutation{Op: gate.OpDelete, Type: "visit", ID: "V-000001", Body: json.RawMessage(`{}`)}}
		if out := h.Apply(ctx, remove); out.Class != gate.Applied || out.Ref != "V-000001" || out.Entity != nil {
			t.Errorf("delete: %+v", out)
		}
		if _, err := h.Read(ctx, "visit", "V-000001"); !errors.Is(err, gate.ErrNotFound) {
			t.Errorf("read of a deleted entity: %v", err)
		}
	}
}

func TestFaultsAreClassified(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  sandbox.Fault
		class  gate.OutcomeClass
		status int
		lookUp gate.LookUpClass
	}{
		"500 before":  {sandbox.Fault{Kind: sandbox.ErrorBefore}, gate.Uncertain, 500, gate.Absent},
		"500 after":   {sandbox.Fault{Kind: sandbox.ErrorAfter}, gate.Uncertain, 500, gate.Found},
		"cut after":   {sandbox.Fault{Kind: sandbox.CutAfter}, gate.Uncertain, 0, gate.Found},
		"slow answer": {sandbox.Fault{Kind: sandbox.LatencyAfter, DurationMS: 60_000}, gate.Uncertain, 0, gate.Found},
		"definite":    {sandbox.Fault{Kind: sandbox.Refuse, Status: 403}, gate.Refused, 403, gate.Absent},
		"429":         {sandbox.Fault{Kind: sandbox.Refuse, Status: 429}, gate.Uncertain, 429, gate.Absent},
		"409":         {sandbox.Fault{Kind: sandbox.Refuse, Status: 409}, gate.Uncertain, 409, gate.Absent},
	} {
		t.Run(name, func(t *testing.T) {
			sys, h, _ := care(t, target.Config{Timeout: 300 * time.Millisecond})
			defer func() { _ = sys.Close() }() // ends the latency
			tc.fault.Count = 1
			if err := sys.SetFaults([]sandbox.Fault{tc.fault}); err != nil {
				t.Fatal(err)
			}
			out := h.Apply(t.Context(), create(1))
			if out.Class != tc.class || out.Status != tc.status || out.Detail == "" {
				t.Errorf("outcome %+v, want %s with status %d and a detail", out, tc.class, tc.status)
			}
			if n := sys.Sends()[gate.Key{1}.String()]; n != 1 {
				t.Errorf("%d sends, want exactly 1", n)
			}
			if look := h.LookUp(t.Context(), gate.Key{1}, start); look.Class != tc.lookUp {
				t.Errorf("look-up %+v, want %s", look, tc.lookUp)
			}
		})
	}
}

func TestKeyReusedIsNotARefusal(t *testing.T) {
	_, h, _ := care(t, target.Config{})
	h.Apply(t.Context(), create(1))
	other := create(1)
	other.Mutation.Body = json.RawMessage(`{"n":2}`)
	if out := h.Apply(t.Context(), other); out.Class != gate.Uncertain || out.Status != 422 {
		t.Errorf("outcome %+v, want uncertain: an earlier attempt may have been ours", out)
	}
}

func TestConfiguredDefiniteStatuses(t *testing.T) {
	sys, h, _ := care(t, target.Config{Definite: []int{429}})
	for status, want := range map[int]gate.OutcomeClass{429: gate.Refused, 403: gate.Uncertain} {
		if err := sys.SetFaults([]sandbox.Fault{{Kind: sandbox.Refuse, Status: status}}); err != nil {
			t.Fatal(err)
		}
		if out := h.Apply(t.Context(), create(1)); out.Class != want {
			t.Errorf("%d: %s, want %s", status, out.Class, want)
		}
	}
}

// raw is a TCP server that counts the requests it read in full and answers
// each by a function; it returns false to cut the connection.
type raw struct {
	url      string
	requests atomic.Int64
}

func listen(t *testing.T, answer func(n int64, c net.Conn) bool) *raw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := &raw{url: "http://" + l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c, answer)
		}
	}()
	return r
}

func (r *raw) serve(c net.Conn, answer func(int64, net.Conn) bool) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if !answer(r.requests.Add(1), c) {
			return
		}
	}
}

func say(c net.Conn, s string) bool {
	_, err := io.WriteString(c, s)
	return err == nil
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// A server that cuts kept-alive connections is where net/http would send a
// request with an Idempotency-Key again by itself.
func TestKeptAliveConnectionsAreNotRetried(t *testing.T) {
	for name, m := range map[string]gate.Mutation{
		"create": {Op: gate.OpCreate, Type: "visit", Body: json.RawMessage(`{}`)},
		"update": {Op: gate.OpUpdate, Type: "visit", ID: "V-1", Body: json.RawMessage(`{}`)},
		"delete": {Op: gate.OpDelete, Type: "visit", ID: "V-1", Body: json.RawMessage(`{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			srv := listen(t, func(n int64, c net.Conn) bool {
				return n == 1 && say(c, okAnswer) // the second request on the connection is cut
			})
			h := dial(t, target.Config{BaseURL: srv.url})
			if out := h.Apply(t.Context(), gate.Send{Key: gate.Key{1}, Mutation: m}); out.Class != gate.Applied {
				t.Fatalf("first: %+v", out)
			}
			if out := h.Apply(t.Context(), gate.Send{Key: gate.Key{2}, Mutation: m}); out.Class != gate.Uncertain {
				t.Errorf("second: %+v, want uncertain", out)
			}
			if n := srv.requests.Load(); n != 2 {
				t.Errorf("%d requests arrived for 2 sends", n)
			}
		})
	}
}

func TestBrokenAnswersAreUncertain(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	for name, tc := range map[string]struct {
		answer string
		class  gate.OutcomeClass
		ref    string
	}{
		"cut before the answer":   {"", gate.Uncertain, ""},
		"cut in the header":       {"HTTP/1.1 200 OK\r\nContent-", gate.Uncertain, ""},
		"cut in the body":         {"HTTP/1.1 201 Created\r\nContent-Length: 90\r\n\r\n{\"id\":", gate.Uncertain, ""},
		"not HTTP":                {"SSH-2.0-OpenSSH\r\n\r\n", gate.Uncertain, ""},
		"endless answer":          {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big), gate.Uncertain, ""},
		"endless header":          {"HTTP/1.1 200 OK\r\nX-A: " + big + "\r\n\r\n", gate.Uncertain, ""},
		"redirect":                {"HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/elsewhere\r\nContent-Length: 0\r\n\r\n", gate.Uncertain, ""},
		"see other":               {"HTTP/1.1 303 See Other\r\nLocation: /v1/elsewhere\r\nContent-Length: 0\r\n\r\n", gate.Uncertain, ""},
		"bad gateway":             {"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", gate.Uncertain, ""},
		"request timeout":         {"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", gate.Uncertain, ""},
		"in flight":               {"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n", gate.Uncertain, ""},
		"definite":                {"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", gate.Refused, ""},
		"definite, then cut":      {"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\nx", gate.Refused, ""},
		"no content":              {"HTTP/1.1 204 No Content\r\n\r\n", gate.Applied, ""},
		"created, location alone": {"HTTP/1.1 201 Created\r\nLocation: /v1/visit/V-7\r\nContent-Length: 0\r\n\r\n", gate.Applied, "V-7"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := listen(t, func(_ int64, c net.Conn) bool { say(c, tc.answer); return false })
			h := dial(t, target.Config{BaseURL: srv.url})
			out := h.Apply(t.Context(), create(1))
			if out.Class != tc.class || out.Ref != tc.ref {
				t.Errorf("outcome %+v, want %s with ref %q", out, tc.class, tc.ref)
			}
			if n := srv.requests.Load(); n != 1 {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
}

func TestResetIsUncertain(t *testing.T) {
	srv := listen(t, func(_ int64, c net.Conn) bool {
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	})
	if out := dial(t, target.Config{BaseURL: srv.url}).Apply(t.Context(), create(1)); out.Class != gate.Uncertain {
		t.Errorf("outcome %+v", out)
	}
}

func TestNothingWrittenIsARefusal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	out := dial(t, target.Config{BaseURL: closed}).Apply(t.Context(), create(1))
	if out.Class != gate.Refused || out.Status != 0 || !strings.Contains(out.Detail, "refused") {
		t.Errorf("connection refused: %+v", out)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	srv := listen(t, func(int64, net.Conn) bool { return false })
	if out := dial(t, target.Config{BaseURL: srv.url}).Apply(ctx, create(1)); out.Class != gate.Refused || srv.requests.Load() != 0 {
		t.Errorf("cancelled before the send: %+v, %d requests", out, srv.requests.Load())
	}
	if out := dial(t, target.Config{BaseURL: srv.url}).Apply(t.Context(), gate.Send{Mutation: gate.Mutation{Op: gate.OpDelete, Type: "visit"}}); out.Class != gate.Refused {
		t.Errorf("a delete without an id: %+v", out)
	}
}

// With the only connection busy, a send that waits in vain was never written.
func TestNoConnectionInTimeIsARefusal(t *testing.T) {
	busy, release := make(chan struct{}), make(chan struct{})
	srv := listen(t, func(_ int64, c net.Conn) bool { close(busy); <-release; return say(c, okAnswer) })
	h := dial(t, target.Config{BaseURL: srv.url, MaxConns: 1, Timeout: 10 * time.Second})
	first := make(chan gate.Outcome)
	go func() { first <- h.Apply(t.Context(), create(1)) }()
	<-busy
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if out := h.Apply(ctx, create(2)); out.Class != gate.Refused {
		t.Errorf("outcome %+v, want refused", out)
	}
	close(release)
	if out := <-first; out.Class != gate.Applied || srv.requests.Load() != 1 {
		t.Errorf("first: %+v; %d requests", out, srv.requests.Load())
	}
}

func TestTimeoutIsUncertain(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	srv := listen(t, func(int64, net.Conn) bool { <-hold; return false })
	h := dial(t, target.Config{BaseURL: srv.url, Timeout: 100 * time.Millisecond})
	if out := h.Apply(t.Context(), create(1)); out.Class != gate.Uncertain {
		t.Errorf("outcome %+v", out)
	}
}
