package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/gatetest"
	"sluis/migrations/testdb"
	"sluis/snapshots"
	"sluis/snapshots/s3server/s3test"
	"sluis/web"
	"sluis/web/browsertest"
	"sluis/web/webtest"
)

// screenshots is where the pictures of the README are.
const screenshots = "../../docs/screenshots"

// picture saves a screenshot when SLUIS_SCREENSHOTS is set, so that an ordinary
// run leaves the working tree as it is; it always takes one.
func picture(t *testing.T, b *browsertest.B, name string) {
	t.Helper()
	dir := screenshots
	if os.Getenv("SLUIS_SCREENSHOTS") == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, name+".png")
	b.Screenshot(path)
	if info, err := os.Stat(path); err != nil || info.Size() < 10_000 {
		t.Errorf("screenshot %s: %v", name, err)
	}
}

// TestAPlannerUndoesTheBadNight walks the whole story in a real browser, from
// the sign-in to the banner, against a whole process with everything in it.
func TestAPlannerUndoesTheBadNight(t *testing.T) {
	p := startDemo(t, dataRoot(t))
	b := browsertest.Browser(t)
	b.Viewport(1280, 900)
	b.SignIn(p.ready.Console, p.ready.User, p.ready.Password)
	b.Open(p.ready.Console + "/?i=care")
	b.WaitText("main", "312")
	picture(t, b, "dashboard")

	b.Open(p.ready.Console + "/pairs?i=care")
	b.WaitText("main", "312")
	picture(t, b, "pairs")

	b.Open(p.ready.Console + "/rollbacks/new?i=care")
	b.WaitText("main", "312")
	picture(t, b, "rollback-new")
	b.Click(`form[action^="/rollbacks"][method=post] button[type=submit], form[action^="/rollbacks"][method=post] button:not([type])`)
	b.Wait(`document.querySelector('[data-rollback-state="ready"]')`)
	b.WaitText("main", "312")
	picture(t, b, "rollback-plan")
	path := browsertest.Eval[string](b, "location.pathname")

	if label := b.Text(`form[action*="/approve"] button`); !strings.Contains(label, "312") || !strings.Contains(label, "care") {
		t.Errorf("the button does not say what it does: %q", label)
	}
	b.Click(`form[action*="/approve"] button`)
	b.Wait(`document.querySelector('[data-rollback-state="applied"]')`)
	picture(t, b, "rollback-applied")
	if got := p.wednesday(); got != 312 {
		t.Errorf("the board holds %d visits afterwards, want 312", got)
	}
	b.Open(p.ready.Console + "/?i=care")
	b.Wait(`document.querySelector('a[href^="` + path + `"]')`) // the banner
	p.checkNothingDoubled()

	axeEveryPage(t, b, p, path)
}

// axeEveryPage checks every page that the story has filled, in both schemes and
// widths.
func axeEveryPage(t *testing.T, b *browsertest.B, p *process, rollback string) {
	t.Helper()
	status, answer, err := p.agentCall("POST", mutationsPath, mutation("evt-axe"))
	if err != nil || status != 200 {
		t.Fatalf("%d %v %v", status, answer, err)
	}
	pages := []string{
		"/", "/drops", "/quarantine", "/in-flight", "/pairs", "/pairs/1", "/history", "/history/visit/" + url.PathEscape(answer["external_ref"].(string)),
		"/mutations/1", "/events/home/evt-axe", "/snapshots", "/snapshots/1", "/rollbacks", "/rollbacks/new", rollback,
		"/audit", "/audit/1", "/integrations", "/profile",
	}
	for _, page := range pages {
		b.Axe(p.ready.Console + page + "?i=care")
	}
}

// TestRouteTable holds the whole route table of the binary against its server:
// every route by every role, method and origin.
func TestRouteTable(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	keys, _, err := snapshots.GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	a, err := newApp(parts{
		pool: w.Pool, store: s3test.Store(t), keys: keys, clock: w.Clock, log: discard,
		targets: map[string]gate.Target{care: w.Target},
		timing:  timing{StaleAfter: 2 * time.Minute, SendTimeout: 15 * time.Second, ReconcileEvery: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	routes := a.routes(a.accounts())
	if len(routes) < 40 {
		t.Fatalf("only %d routes: the table is not whole", len(routes))
	}
	for _, r := range routes {
		if r.Method == "GET" && len(r.Allow) != len(web.Everyone) && !r.Public && !strings.HasPrefix(r.Path, "/users") {
			t.Errorf("GET %s is closed to some roles: reading is for everyone but the users page", r.Path)
		}
	}
	webtest.Matrix(t, testdb.Pool(t), routes)
}
