package handlers_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/handlers"
	"sluis/migrations/testdb"
	"sluis/web"
	"sluis/web/webtest"
)

func platformRoutes(c *webtest.Console) []web.Route {
	routes := handlers.SignIn{Accounts: c.Accounts, Attempts: web.NewAttempts()}.Routes()
	routes = append(routes, handlers.Profile{Accounts: c.Accounts}.Routes()...)
	routes = append(routes, handlers.Users{Accounts: c.Accounts}.Routes()...)
	return append(routes, web.Route{Method: http.MethodGet, Path: "/", Name: "home", Allow: web.Everyone,
		Handler: func(c *web.Context) error { return c.Redirect("/profile") }})
}

func TestPlatformMatrix(t *testing.T) {
	console := &webtest.Console{}
	webtest.Matrix(t, testdb.Pool(t), platformRoutes(console))
}

func signIn(name, password, next string) url.Values {
	return url.Values{"name": {name}, "password": {password}, "next": {next}}
}

func TestSignIn(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	console.User(t, web.Planner)
	client := console.Anonymous(t)

	if got := client.Get("/users?x=1"); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/signin?next=%2Fusers%3Fx%3D1" {
		t.Errorf("page without a session: %d %s", got.Status, got.Header.Get("Location"))
	}
	page := client.Get("/signin?next=%2Fprofile")
	if got, _ := page.Doc.Find("input[name=next]").Attr("value"); got != "/profile" {
		t.Errorf("next = %q", got)
	}
	for _, next := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "javascript:alert(1)"} {
		page := client.Get("/signin?next=" + url.QueryEscape(next))
		if got, _ := page.Doc.Find("input[name=next]").Attr("value"); got != "/" {
			t.Errorf("next of %q = %q", next, got)
		}
	}
	wrong := client.Post("/signin", signIn("planner", "not the password", "/profile"))
	unknown := client.Post("/signin", signIn("nobody", "not the password", "/profile"))
	for name, got := range map[string]webtest.Response{"wrong": wrong, "unknown": unknown} {
		if got.Status != http.StatusUnauthorized || got.Text("#signin-error") != "Name or password is wrong." {
			t.Errorf("%s: %d %q", name, got.Status, got.Text("#signin-error"))
		}
	}
	if got := client.Post("/signin", signIn(" Planner ", webtest.Password, "/profile")); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/profile" {
		t.Fatalf("sign-in: %d %s", got.Status, got.Body)
	}
	if got := client.Get("/profile"); got.Status != http.StatusOK || got.Text(".menu summary") != "planner" {
		t.Errorf("profile: %d %q", got.Status, got.Text(".menu summary"))
	}
	var actions []string
	for _, e := range console.TakeEntries() {
		actions = append(actions, e.Action+" "+e.Object)
	}
	want := []string{"user.sign_in_failed user/planner", "user.sign_in_failed user/nobody", "user.signed_in user/planner"}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	stolen := *client
	if got := client.Post("/signout", nil); got.Status != http.StatusSeeOther {
		t.Errorf("sign-out: %d", got.Status)
	}
	if got := stolen.Get("/profile"); got.Status != http.StatusSeeOther {
		t.Errorf("session after sign-out: %d", got.Status)
	}
}

func TestSignInIsLimited(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	console.User(t, web.Viewer)
	client := console.Anonymous(t)
	for range 10 {
		client.Post("/signin", signIn("viewer", "guess guess guess", "/"))
	}
	got := client.Post("/signin", signIn("VIEWER", webtest.Password, "/"))
	if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("eleventh attempt: %d", got.Status)
	}
	console.Advance(2 * time.Minute)
	if got := client.Post("/signin", signIn("viewer", webtest.Password, "/")); got.Status != http.StatusSeeOther {
		t.Errorf("two minutes later: %d", got.Status)
	}
}

func TestSignInIsLimitedByTheRealAddress(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	console.User(t, web.Viewer)
	client := console.Anonymous(t)
	for i := range 30 {
		header := http.Header{"X-Forwarded-For": {"203.0.113." + strconv.Itoa(i)}, "X-Real-Ip": {"203.0.113." + strconv.Itoa(i)}}
		client.Do(http.MethodPost, "/signin", signIn("nobody"+strconv.Itoa(i), "x", "/"), header)
	}
	if got := client.Post("/signin", signIn("viewer", webtest.Password, "/")); got.Status != http.StatusTooManyRequests {
		t.Errorf("a forged header hides the address: %d", got.Status)
	}
}

func TestProfile(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	client := console.As(t, web.Viewer)
	if got := client.Post("/profile", url.Values{"lang": {"nl"}, "theme": {"dark"}}); got.Header.Get("Location") != "/profile" {
		t.Fatalf("save: %d", got.Status)
	}
	page := client.Get("/profile")
	html := page.Doc.Find("html")
	for attr, want := range map[string]string{"lang": "nl", "data-theme": "dark", "data-keys": "off"} {
		if got, _ := html.Attr(attr); got != want {
			t.Errorf("%s = %q, want %q", attr, got, want)
		}
	}
	if got := page.Text(".flash"); got != "● Uw instellingen zijn opgeslagen." {
		t.Errorf("flash = %q", got)
	}
	if again := client.Get("/profile"); again.Doc.Find(".flash").Length() != 0 {
		t.Error("the flash is shown twice")
	}
	if got := client.Post("/profile/language", url.Values{"lang": {"en"}, "back": {"/quarantine?state=open"}}); got.Header.Get("Location") != "/quarantine?state=open" {
		t.Errorf("language leads to %q", got.Header.Get("Location"))
	}
	client.Post("/profile/theme", url.Values{"theme": {"light"}, "back": {"/"}})
	html = client.Get("/profile").Doc.Find("html")
	if got, _ := html.Attr("lang"); got != "en" {
		t.Errorf("lang = %q", got)
	}
	if got, _ := html.Attr("data-theme"); got != "light" {
		t.Errorf("theme = %q", got)
	}
}

func TestUsers(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	admin, viewer := console.As(t, web.Admin), console.As(t, web.Viewer)
	self := console.User(t, web.Admin)
	id := func(u web.User, action string) string { return "/users/" + strconv.FormatInt(u.ID, 10) + "/" + action }

	failures := []struct {
		name, path string
		form       url.Values
		want       string
	}{
		{"taken", "/users", url.Values{"name": {"Viewer"}, "display": {"V"}, "role": {"viewer"}, "password": {webtest.Password}}, "That name is taken."},
		{"name", "/users", url.Values{"name": {"a b"}, "display": {"V"}, "role": {"viewer"}, "password": {webtest.Password}}, "That name is not allowed"},
		{"display", "/users", url.Values{"name": {"ab"}, "display": {" "}, "role": {"viewer"}, "password": {webtest.Password}}, "The full name is missing"},
		{"role", "/users", url.Values{"name": {"ab"}, "display": {"V"}, "role": {"root"}, "password": {webtest.Password}}, "There is no such role."},
		{"password", "/users", url.Values{"name": {"ab"}, "display": {"V"}, "role": {"viewer"}, "password": {"short"}}, "A password has 12"},
		{"self", id(self, "disabled"), url.Values{"disabled": {"yes"}}, "You cannot disable yourself."},
		{"last admin", id(self, "role"), url.Values{"role": {"viewer"}}, "The last administrator must stay one."},
		{"unknown", "/users/999/role", url.Values{"role": {"viewer"}}, "That user does not exist."},
	}
	for _, f := range failures {
		got := admin.Post(f.path, f.form)
		if got.Status != http.StatusUnprocessableEntity || !strings.HasPrefix(got.Text("#users-error"), f.want) {
			t.Errorf("%s: %d %q", f.name, got.Status, got.Text("#users-error"))
		}
	}
	if n := len(console.TakeEntries()); n != 0 {
		t.Errorf("%d entries for what did not happen", n)
	}
	created := url.Values{"name": {"Anna"}, "display": {"Anna Jansen"}, "role": {"planner"}, "password": {webtest.Password}}
	if got := admin.Post("/users", created); got.Status != http.StatusSeeOther {
		t.Fatalf("create: %d %s", got.Status, got.Text("#users-error"))
	}
	page := admin.Get("/users")
	if got := page.Text(".flash"); got != "● anna can sign in now." {
		t.Errorf("flash = %q", got)
	}
	if got := page.Doc.Find("table.users tbody tr").Length(); got != 3 {
		t.Errorf("%d users", got)
	}
	admin.Post(id(console.User(t, web.Viewer), "role"), url.Values{"role": {"oncall"}})
	if got := viewer.Get("/profile"); got.Status != http.StatusSeeOther {
		t.Errorf("session after the role changed: %d", got.Status)
	}
	var actions []string
	for _, e := range console.TakeEntries() {
		actions = append(actions, e.Actor.Name+" "+e.Action+" "+e.Object)
	}
	want := []string{"admin user.created user/anna", "admin user.role user/viewer"}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
