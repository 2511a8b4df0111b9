// Package webtest drives the console in tests: a server over a real database
// with a clock that the test moves, clients signed in by role, and the matrix
// of who may do what, made from the route table itself.
package webtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"sluis/web"
)

// Password is the password of every user that a Console makes.
const Password = "a long enough password"

// Origin is where the console believes to be.
const Origin = "http://console.test"

// Start is the instant at which a Console's clock stands at first: in the hour
// that is repeated, so that a missing offset shows.
var Start = time.Date(2025, 10, 26, 1, 13, 0, 0, time.UTC)

// Console is a console under test.
type Console struct {
	Server   *web.Server
	Sessions *web.Sessions
	Accounts *web.Accounts
	Hub      *web.Hub
	DB       web.TxDB

	mu       sync.Mutex
	now      time.Time
	refusals []web.Refusal
	entries  []web.AccountEntry
	users    map[web.Role]web.User
}

// New builds a console. routes gets it before the server exists, to take
// Accounts; adjust may change the configuration and may be nil.
func New(t testing.TB, db web.TxDB, routes func(*Console) []web.Route, adjust func(*web.Config)) *Console {
	t.Helper()
	c := &Console{DB: db, Hub: web.NewHub(), now: Start, users: map[web.Role]web.User{}}
	c.Sessions = web.NewSessions(db, c.Now, false)
	c.Accounts = web.NewAccounts(db, c.Now, func(_ context.Context, _ web.Tx, e web.AccountEntry) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.entries = append(c.entries, e)
		return nil
	})
	config := web.Config{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: c.Now,
		Sessions: c.Sessions, Hub: c.Hub, Refused: c.refused,
	}
	if adjust != nil {
		adjust(&config)
	}
	server, err := web.NewOperators(config, routes(c))
	if err != nil {
		t.Fatal(err)
	}
	c.Server = server
	return c
}

func (c *Console) refused(_ context.Context, r web.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals = append(c.refusals, r)
}

// Now is the console's clock.
func (c *Console) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on.
func (c *Console) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// TakeRefusals returns the refusals reported so far and forgets them.
func (c *Console) TakeRefusals() []web.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.refusals
	c.refusals = nil
	return list
}

// TakeEntries returns the account entries recorded so far and forgets them.
func (c *Console) TakeEntries() []web.AccountEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.entries
	c.entries = nil
	return list
}

// User returns the console's user of that role, made on first use. Its name is
// the role's.
func (c *Console) User(t testing.TB, role web.Role) web.User {
	t.Helper()
	if u, ok := c.users[role]; ok {
		return u
	}
	u, err := web.CreateUser(t.Context(), c.DB, web.NewUser{
		Name: string(role), Display: "The " + string(role), Role: role, Password: Password, At: c.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.users[role] = u
	return u
}

// Client sends requests with the cookies that it was given.
type Client struct {
	t       testing.TB
	console *Console
	Cookie  *http.Cookie // nil when not signed in
}

// Anonymous returns a client that is not signed in.
func (c *Console) Anonymous(t testing.TB) *Client { return &Client{t: t, console: c} }

// As returns a client with a session of a user of that role.
func (c *Console) As(t testing.TB, role web.Role) *Client {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, Origin+"/signin", nil)
	w := httptest.NewRecorder()
	old, err := c.Sessions.New(r, "sluis")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sessions.Renew(r, w, old, c.User(t, role)); err != nil {
		t.Fatal(err)
	}
	cl := c.Anonymous(t)
	cl.keep(w.Result())
	return cl
}

func (cl *Client) keep(r *http.Response) {
	for _, cookie := range r.Cookies() {
		cl.Cookie = cookie
		if cookie.MaxAge < 0 {
			cl.Cookie = nil
		}
	}
}

// Response is an answer with its parsed page.
type Response struct {
	Status int
	Header http.Header
	Body   string
	Doc    *goquery.Document
}

// Text returns the trimmed text of the first element that selector finds.
func (r Response) Text(selector string) string {
	return strings.Join(strings.Fields(r.Doc.Find(selector).First().Text()), " ")
}

// Get opens a page.
func (cl *Client) Get(path string) Response { return cl.Do(http.MethodGet, path, nil, nil) }

// Post sends a form as the console's own pages do.
func (cl *Client) Post(path string, form url.Values) Response {
	return cl.Do(http.MethodPost, path, form, nil)
}

// Do sends a request. Unless header says otherwise it comes from the console's
// own origin.
func (cl *Client) Do(method, path string, form url.Values, header http.Header) Response {
	cl.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(cl.t.Context(), method, Origin+path, body)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", Origin)
	for name, values := range header {
		r.Header[name] = values
	}
	if cl.Cookie != nil {
		r.AddCookie(cl.Cookie)
	}
	w := httptest.NewRecorder()
	cl.console.Server.ServeHTTP(w, r)
	cl.keep(w.Result())
	doc, err := goquery.NewDocumentFromReader(strings.NewReader(w.Body.String()))
	if err != nil {
		cl.t.Fatal(fmt.Errorf("%s %s: %w", method, path, err))
	}
	return Response{Status: w.Code, Header: w.Header(), Body: w.Body.String(), Doc: doc}
}
