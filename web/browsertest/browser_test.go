package browsertest_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a-h/templ"

	"sluis/migrations/testdb"
	"sluis/views"
	"sluis/web"
	"sluis/web/browsertest"
	"sluis/web/webtest"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(browsertest.Wrap(m))) }

// html is raw markup as a component.
func html(text string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// within renders inner as the children of outer.
func within(outer, inner templ.Component) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		return outer.Render(templ.WithChildren(ctx, inner), w)
	})
}

// board is a console with one live page: a list, a note beside it, and a form.
type board struct {
	*webtest.Console
	row atomic.Value // markup of the list's only row
}

const boardPage = `<h1>Board</h1>
<p data-undo><span id="wait" data-undo-wait><span data-until="2025-10-26T01:13:02Z"></span></span><span id="sent" data-undo-sent hidden>sent</span></p>
<div id="list" data-rows><p id="row-1" data-row><a href="/?row=1">old</a></p><p id="row-2" data-row><a href="/?row=2">two</a></p></div>
<label for="search">Search</label><input id="search" data-search>
<form method="post" action="/decide"><label for="note">Note</label><textarea id="note" name="note"></textarea>
<button type="submit" name="verdict" value="release" data-key="r" data-focus="note">Release</button>
<button type="submit" name="verdict" value="reject" data-key="x" data-focus="note">Reject</button></form>
<form><input type="checkbox" data-check-all aria-label="all"><input type="checkbox" data-range aria-label="1"><input type="checkbox" data-range aria-label="2">
<input type="checkbox" data-range aria-label="3"><span data-selected>0</span><button type="button" id="bulk" data-needs-selection>Go</button></form>`

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{}
	b.row.Store("old")
	b.Console = webtest.New(t, testdb.Pool(t), func(*webtest.Console) []web.Route {
		return []web.Route{
			{Method: "GET", Path: "/", Name: "board", Allow: web.Everyone, Handler: b.show},
			{Method: "GET", Path: "/stream", Name: "stream", Allow: web.Everyone, Stream: true, Handler: b.stream},
			{Method: "GET", Path: "/signin", Name: "signin", Public: true, Handler: func(c *web.Context) error {
				return c.Render(http.StatusOK, views.SignIn(views.SignInPage{Page: c.Page("signin.title", "")}))
			}},
			{Method: "POST", Path: "/signin", Name: "signin.post", Public: true, Handler: func(c *web.Context) error {
				if err := c.SignIn(b.User(t, web.Planner)); err != nil {
					return err
				}
				return c.Redirect("/")
			}},
			{Method: "POST", Path: "/decide", Name: "decide", Allow: web.Everyone, Handler: func(c *web.Context) error {
				form, err := c.Form()
				if err != nil {
					return err
				}
				return c.Render(http.StatusOK, within(views.Layout(c.Page("nav.pairs", "")),
					html(`<p id="decided">`+templ.EscapeString(form.Get("verdict")+" "+form.Get("note"))+`</p>`)))
			}},
		}
	}, nil)
	return b
}

func (b *board) show(c *web.Context) error {
	p := c.Page("nav.quarantine", "quarantine")
	p.LiveURL = "/stream"
	return c.Render(http.StatusOK, within(views.Layout(p), templ.Join(views.Stream(p.LiveURL), html(boardPage))))
}

func (b *board) stream(c *web.Context) error {
	return c.SSE([]string{"items"}, func(_ context.Context, send web.Send) error {
		row := b.row.Load().(string)
		return send("", templ.Join(
			within(views.Swap("list"), html(`<div id="list" data-rows><p id="row-1" data-row><a href="/?row=1">`+row+
				`</a></p><p id="row-2" data-row><a href="/?row=2">two</a></p></div>`)),
			within(views.Swap("live"), views.Live(views.Page{LiveURL: "/stream", Now: c.Now})),
		))
	})
}

// serve runs the board on a loopback port.
func (b *board) serve(t *testing.T) string {
	t.Helper()
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func TestLivePageUnderTheContentPolicy(t *testing.T) {
	board := newBoard(t)
	board.User(t, web.Planner)
	base := board.serve(t)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)

	b.WaitText("#live", "Live, updated 02:13:00 +01:00")
	b.Type("#note", "half a sentence")
	board.row.Store("new")
	board.Advance(7 * time.Second)
	board.Hub.Publish("items")
	b.WaitText("#row-1", "new")
	b.WaitText("#live", "02:13:07 +01:00")
	if got := browsertest.Eval[string](b, "document.querySelector('#note').value + '|' + document.activeElement.id"); got != "half a sentence|note" {
		t.Errorf("a swap disturbs typing: %q", got)
	}
	b.Screenshot(filepath.Join(t.TempDir(), "board.png"))
	b.NoOverflow()
}

func TestStreamEndsAtSignOutElsewhere(t *testing.T) {
	board := newBoard(t)
	user := board.User(t, web.Planner)
	base := board.serve(t)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	b.WaitText("#live", "Live, updated")
	if err := board.Sessions.Revoke(t.Context(), board.DB, user.ID); err != nil {
		t.Fatal(err)
	}
	board.Hub.Publish("items")
	b.Wait("location.pathname === '/signin'")
}

func TestSingleKeysNeverSend(t *testing.T) {
	board := newBoard(t)
	board.User(t, web.Planner)
	base := board.serve(t)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	b.WaitText("#live", "Live, updated")

	b.Key("j")
	b.Key("j")
	if got := browsertest.Eval[string](b, "document.querySelector('.cursor').id"); got != "row-2" {
		t.Errorf("cursor on %q", got)
	}
	b.Key("k")
	b.Key("/")
	b.Key("j")
	if got := browsertest.Eval[string](b, "document.activeElement.id + document.querySelector('#search').value"); got != "searchj" {
		t.Errorf("search holds %q", got)
	}
	b.Key("Escape")
	b.Key("x")
	b.Type("#note", "not ours")
	if got := browsertest.Eval[string](b, "location.pathname + document.querySelector('#note').value"); got != "/not ours" {
		t.Errorf("x sent something or typed itself: %q", got)
	}
	b.Key("Ctrl+Enter")
	b.WaitText("#decided", "reject not ours")
}

func TestShiftSelectsARange(t *testing.T) {
	board := newBoard(t)
	board.User(t, web.Planner)
	base := board.serve(t)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	b.WaitText("#live", "Live, updated")
	if !browsertest.Eval[bool](b, "document.querySelector('#bulk').disabled") {
		t.Error("the bulk button is enabled while nothing is selected")
	}
	b.Click("input[aria-label='1']")
	b.Do(shiftClick("input[aria-label='3']"))
	b.WaitText("[data-selected]", "3")
	if browsertest.Eval[bool](b, "document.querySelector('#bulk').disabled") {
		t.Error("the bulk button stays disabled")
	}
	b.Click("input[aria-label=all]")
	b.Click("input[aria-label=all]")
	b.WaitText("[data-selected]", "0")
	if !browsertest.Eval[bool](b, "document.querySelector('#bulk').disabled") {
		t.Error("the bulk button is enabled although nothing is selected any more")
	}
}

func TestCountdownShowsThatUndoIsOver(t *testing.T) {
	board := newBoard(t)
	board.User(t, web.Planner)
	base := board.serve(t)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	b.WaitText("#live", "Live, updated")
	b.Wait("document.querySelector('#wait').hidden && !document.querySelector('#sent').hidden")
}
