package web_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"sluis/migrations/testdb"
	"sluis/web"
	"sluis/web/webtest"
)

func nothing(c *web.Context) error { return c.NoContent(http.StatusNoContent) }

func TestFaultyTablesAreRefusedAtStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		routes []web.Route
		want   string
	}{
		{"neither roles nor public", []web.Route{{Method: "GET", Path: "/", Name: "a", Handler: nothing}}, "neither roles nor public"},
		{"both", []web.Route{{Method: "GET", Path: "/", Name: "a", Public: true, Allow: web.Everyone, Handler: nothing}}, "both public"},
		{"role", []web.Route{{Method: "GET", Path: "/", Name: "a", Allow: []web.Role{"root"}, Handler: nothing}}, "unknown role"},
		{"method", []web.Route{{Method: "get", Path: "/", Name: "a", Public: true, Handler: nothing}}, "method"},
		{"path", []web.Route{{Method: "GET", Path: "x", Name: "a", Public: true, Handler: nothing}}, "path"},
		{"name", []web.Route{{Method: "GET", Path: "/", Public: true, Handler: nothing}}, "no name"},
		{"handler", []web.Route{{Method: "GET", Path: "/", Name: "a", Public: true}}, "no handler"},
		{"stream", []web.Route{{Method: "POST", Path: "/", Name: "a", Public: true, Stream: true, Handler: nothing}}, "must be GET"},
		{"twice", []web.Route{
			{Method: "GET", Path: "/", Name: "a", Public: true, Handler: nothing},
			{Method: "GET", Path: "/", Name: "a", Public: true, Handler: nothing},
		}, "used twice"},
	} {
		_, err := web.NewOperators(web.Config{}, c.routes)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil || !strings.Contains(err.Error(), "Sessions is missing") {
			t.Errorf("%s: the configuration's faults are not reported as well: %v", c.name, err)
		}
	}
	_, err := web.NewAgents(web.Config{Log: slog.Default()}, []web.AgentRoute{{Method: "GET", Path: "/"}})
	for _, want := range []string{"Now is missing", "Principal is missing", "no name", "no handler"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("agents: %q is not in %v", want, err)
		}
	}
}

func TestMatrix(t *testing.T) {
	webtest.Matrix(t, testdb.Pool(t), []web.Route{
		{Method: "GET", Path: "/", Name: "home", Allow: web.Everyone, Handler: nothing},
		{Method: "GET", Path: "/open", Name: "open", Public: true, Handler: nothing},
		{Method: "POST", Path: "/open", Name: "open.post", Public: true, Handler: nothing},
		{Method: "GET", Path: "/stream", Name: "stream", Allow: web.Everyone, Stream: true, Handler: nothing},
		{Method: "POST", Path: "/items/:id/release", Name: "release", Allow: web.Deciders, Handler: nothing},
		{Method: "POST", Path: "/plans", Name: "plans", Allow: web.Planners, Handler: nothing},
		{Method: "DELETE", Path: "/users/:id", Name: "users", Allow: web.Admins, Handler: nothing},
	})
}
