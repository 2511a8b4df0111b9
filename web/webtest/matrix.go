package webtest

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"testing"

	"sluis/web"
)

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

var parameter = regexp.MustCompile(`:[a-zA-Z_]+`)

// Matrix checks the table of routes against the server: every route for nobody
// and for each role, from the console's own origin and from a foreign one, and
// every method that the table does not name. The handlers are replaced by one
// that notes that it was reached, so nothing happens and no fixture is needed.
// Each refused action must have been reported exactly once.
func Matrix(t *testing.T, db web.TxDB, routes []web.Route) {
	t.Helper()
	var reached string
	stubbed := make([]web.Route, len(routes))
	for i, r := range routes {
		stubbed[i] = r
		stubbed[i].Handler = func(c *web.Context) error {
			reached = r.Name
			return c.NoContent(http.StatusNoContent)
		}
	}
	console := New(t, db, func(*Console) []web.Route { return stubbed }, nil)
	clients := map[web.Role]*Client{"": console.Anonymous(t)}
	for _, role := range web.Roles {
		clients[role] = console.As(t, role)
	}
	for _, r := range routes {
		path := parameter.ReplaceAllString(r.Path, "1")
		for role, client := range clients {
			for _, foreign := range []bool{false, true} {
				reached = ""
				console.TakeRefusals()
				got := client.Do(r.Method, path, nil, origin(foreign))
				name := fmt.Sprintf("%s as %q, foreign %t", r.Name, role, foreign)
				checkCell(t, name, r, role, foreign, got, reached, console.TakeRefusals())
			}
		}
	}
	checkMethods(t, clients[web.Admin], routes, &reached)
}

func origin(foreign bool) http.Header {
	if !foreign {
		return nil
	}
	return http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}
}

// checkCell compares one answer with what the table says.
func checkCell(t *testing.T, name string, r web.Route, role web.Role, foreign bool, got Response, reached string, refusals []web.Refusal) {
	t.Helper()
	action := r.Method != http.MethodGet
	allowed := (r.Public || slices.Contains(r.Allow, role)) && !(action && foreign)
	if (reached == r.Name) != allowed {
		t.Errorf("%s: handler reached %t, allowed %t (status %d)", name, reached == r.Name, allowed, got.Status)
	}
	if allowed {
		if len(refusals) != 0 {
			t.Errorf("%s: allowed and yet reported as refused", name)
		}
		return
	}
	want := http.StatusForbidden
	switch {
	case action && foreign:
	case role == "" && (action || r.Stream):
		want = http.StatusUnauthorized
	case role == "":
		want = http.StatusSeeOther
	}
	if got.Status != want {
		t.Errorf("%s: status %d, want %d", name, got.Status, want)
	}
	if reports := len(refusals); action && reports != 1 || !action && reports != 0 {
		t.Errorf("%s: refusal reported %d times", name, reports)
	}
}

// checkMethods sends each method that no route names for a path.
func checkMethods(t *testing.T, client *Client, routes []web.Route, reached *string) {
	t.Helper()
	for _, r := range routes {
		for _, method := range methods {
			if named(routes, method, r.Path) {
				continue
			}
			*reached = ""
			got := client.Do(method, parameter.ReplaceAllString(r.Path, "1"), nil, nil)
			if *reached != "" || got.Status != http.StatusMethodNotAllowed && got.Status != http.StatusNotFound {
				t.Errorf("%s %s: status %d, reached %q", method, r.Path, got.Status, *reached)
			}
		}
	}
}

// named reports whether a route with that method may match the path.
func named(routes []web.Route, method, path string) bool {
	return slices.ContainsFunc(routes, func(r web.Route) bool {
		if r.Method != method {
			return false
		}
		pattern := "^" + parameter.ReplaceAllString(regexp.QuoteMeta(r.Path), "[^/]+") + "$"
		return r.Path == path || regexp.MustCompile(pattern).MatchString(parameter.ReplaceAllString(path, "1"))
	})
}
