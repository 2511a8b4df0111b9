package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/web"
)

func agents(t *testing.T) *web.Server {
	t.Helper()
	config := web.Config{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() time.Time { return time.Unix(0, 0) }, BodyLimit: 100,
		Principal: func(_ context.Context, token string) (web.Principal, error) {
			switch token {
			case "good":
				return web.Principal{Agent: "router", Integration: "care"}, nil
			case "down":
				return web.Principal{}, errDomain
			}
			return web.Principal{}, web.ErrUnknownToken
		},
		Problem: func(err error) *web.Problem {
			if errors.Is(err, errDomain) {
				return &web.Problem{Status: http.StatusConflict, Title: "In flight", RetryAfter: 1500 * time.Millisecond,
					Extensions: map[string]any{"state": "in_flight"}, Err: err}
			}
			return nil
		},
	}
	server, err := web.NewAgents(config, []web.AgentRoute{
		{Method: "POST", Path: "/v1/integrations/:integration/mutations", Name: "mutations", Handler: func(c *web.AgentContext) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			if string(body) == "busy" {
				return errDomain
			}
			if string(body) == "panic" {
				panic("secret")
			}
			return c.JSON(http.StatusOK, map[string]string{"agent": c.Principal.Agent})
		}},
		{Method: "GET", Path: "/openapi.json", Name: "openapi", Public: true, Handler: func(c *web.AgentContext) error {
			return c.String(http.StatusOK, "{}")
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func TestAgentsServer(t *testing.T) {
	server := agents(t)
	const care = "/v1/integrations/care/mutations"
	for _, c := range []struct {
		name, method, path, authorization, body string
		status                                  int
		detail                                  string
	}{
		{"good", "POST", care, "Bearer good", "{}", 200, ""},
		{"scheme in lower case", "POST", care, "bearer good", "{}", 200, ""},
		{"public", "GET", "/openapi.json", "", "", 200, ""},
		{"none", "POST", care, "", "{}", 401, "A bearer token is required."},
		{"basic", "POST", care, "Basic good", "{}", 401, "A bearer token is required."},
		{"unknown", "POST", care, "Bearer bad", "{}", 401, "The token is not valid."},
		{"other integration", "POST", "/v1/integrations/feeds/mutations", "Bearer good", "{}", 403, "The token belongs to another integration."},
		{"store down", "POST", care, "Bearer down", "{}", 503, "The token cannot be checked now."},
		{"too large", "POST", care, "Bearer good", strings.Repeat("x", 101), 413, "The body is larger than 100 bytes."},
		{"no such path", "GET", "/v2", "Bearer good", "", 404, ""},
		{"wrong method", "DELETE", care, "Bearer good", "", 405, ""},
		{"domain", "POST", care, "Bearer good", "busy", 409, ""},
		{"panic", "POST", care, "Bearer good", "panic", 500, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", c.authorization)
		r.AddCookie(&http.Cookie{Name: "sluis", Value: "ignored"})
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
			continue
		}
		if len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: sets a cookie", c.name)
		}
		if c.status < 400 {
			continue
		}
		var doc map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s %v", c.name, w.Header().Get("Content-Type"), err)
		}
		got, _ := doc["detail"].(string)
		if got != c.detail || doc["status"] != float64(c.status) || doc["type"] != "about:blank" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %s", c.name, w.Body)
		}
		if (c.status == 401) != (w.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate %q", c.name, w.Header().Get("WWW-Authenticate"))
		}
	}
}

func TestProblemDocument(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/integrations/care/mutations", strings.NewReader("busy"))
	r.Header.Set("Authorization", "Bearer good")
	r.Header.Set("X-Request-Id", "request-1")
	w := httptest.NewRecorder()
	agents(t).ServeHTTP(w, r)
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"type": "about:blank", "title": "In flight", "status": 409.0, "state": "in_flight", "instance": "urn:sluis:request:request-1"}
	if diff := cmp.Diff(want, doc); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if got := w.Header().Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %s", got)
	}
}
