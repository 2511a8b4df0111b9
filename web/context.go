package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/gorilla/sessions"
	"github.com/labstack/echo/v4"

	"sluis/views"
	"sluis/views/i18n"
)

// Limits of a form. A longer body is answered with 413.
const (
	formLimit      = 256 << 10
	formFieldLimit = 1000
)

// Context is what a console handler gets: Echo's context, who is asking, and
// when.
type Context struct {
	echo.Context
	User      User      // zero on a public route without a session
	Now       time.Time // the instant of the request, from Config.Now
	RequestID string

	server       *Server
	session      *sessions.Session
	integrations []string
	loadErr      error
}

const echoKey = "sluis"

// context returns the request's Context, made on first use.
func (s *Server) context(ec echo.Context) *Context {
	if c, ok := ec.Get(echoKey).(*Context); ok {
		return c
	}
	c := &Context{Context: ec, Now: s.config.Now(), RequestID: requestID(ec), server: s}
	ec.Set(echoKey, c)
	c.loadSession()
	c.localize()
	return c
}

func (c *Context) loadSession() {
	c.session, c.loadErr = c.server.config.Sessions.Get(c.Request(), c.server.cookie)
	if c.loadErr != nil {
		c.loadErr = fmt.Errorf("load session: %w", c.loadErr)
		return
	}
	c.User, _ = c.session.Values[sessionUser].(User)
}

// localize puts the language, zone and instant into the request's context.
func (c *Context) localize() {
	lang := c.User.Lang
	if q := c.QueryParam("lang"); c.User.ID == 0 && q != "" {
		lang = q
	}
	r := c.Request()
	lang = i18n.Match(lang, r.Header.Get("Accept-Language"))
	ctx := i18n.Context(r.Context(), lang, c.server.config.Zone, c.Now)
	c.SetRequest(r.WithContext(ctx))
}

// Ctx returns the request's context: cancelled when the client goes away,
// carrying the person's language, zone and the instant of the request.
func (c *Context) Ctx() context.Context { return c.Request().Context() }

// T is i18n.T in the person's language.
func (c *Context) T(id string, kv ...any) string { return i18n.T(c.Ctx(), id, kv...) }

// Render writes the component as HTML. It renders into a buffer first: when
// the component fails, nothing has been sent and the error page follows.
func (c *Context) Render(status int, component templ.Component) error {
	var buf bytes.Buffer
	if err := component.Render(c.Ctx(), &buf); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.HTMLBlob(status, buf.Bytes())
}

// IsHTMX reports whether htmx asks and so expects a fragment. Restoring a page
// from history asks for the whole page.
func (c *Context) IsHTMX() bool {
	h := c.Request().Header
	return h.Get("HX-Request") == "true" && h.Get("HX-History-Restore-Request") != "true"
}

// Redirect answers 303 to a path of the console. A path that leads anywhere
// else (another host, a scheme, a backslash) goes to the dashboard instead.
// htmx is told by header, so that the whole page changes.
func (c *Context) Redirect(path string) error {
	path = LocalPath(path)
	if c.IsHTMX() {
		c.Response().Header().Set("HX-Redirect", path)
		return c.NoContent(http.StatusNoContent)
	}
	return c.Context.Redirect(http.StatusSeeOther, path)
}

// LocalPath returns path when it is a path on this console, else "/".
func LocalPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	u, err := url.Parse(path)
	if err != nil || u.Host != "" || u.Scheme != "" || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	return path
}

// Form parses the posted form within the limits of 256 KiB and 1,000 fields.
// It never holds values of the URL.
func (c *Context) Form() (url.Values, error) {
	r := c.Request()
	r.Body = http.MaxBytesReader(c.Response(), r.Body, formLimit)
	if err := r.ParseForm(); err != nil {
		return nil, &Error{Status: formStatus(err), MessageID: formMessage(err), Err: err}
	}
	n := 0
	for _, values := range r.PostForm {
		n += len(values)
	}
	if n > formFieldLimit {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, MessageID: "error.too_large",
			Err: fmt.Errorf("form has %d fields", n)}
	}
	return r.PostForm, nil
}

func formStatus(err error) int {
	if isTooLarge(err) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

func formMessage(err error) string { return statusMessages[formStatus(err)] }

// Flash keeps a notice in the session, to be shown once on the next page. It
// does nothing without a session.
func (c *Context) Flash(f views.Flash) error {
	if c.User.ID == 0 {
		return nil
	}
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("flash: %w", err)
	}
	c.session.AddFlash(string(text))
	return c.saveSession()
}

func (c *Context) saveSession() error {
	if err := c.session.Save(c.Request(), c.Response()); err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	return nil
}

// flashes takes the notices out of the session.
func (c *Context) flashes() []views.Flash {
	if c.User.ID == 0 {
		return nil
	}
	kept := c.session.Flashes()
	if len(kept) == 0 {
		return nil
	}
	list := make([]views.Flash, 0, len(kept))
	for _, k := range kept {
		var f views.Flash
		if text, ok := k.(string); ok && json.Unmarshal([]byte(text), &f) == nil {
			list = append(list, f)
		}
	}
	if err := c.saveSession(); err != nil {
		c.server.config.Log.WarnContext(c.Ctx(), "flashes stay", "request_id", c.RequestID, "error", err)
	}
	return list
}

// SignIn starts a new session for the user: a new token, the old session ended.
// Which sign-in it is (a password, later an identity provider) is the caller's.
func (c *Context) SignIn(u User) error {
	s, err := c.server.config.Sessions.Renew(c.Request(), c.Response(), c.session, u)
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	c.session, c.User = s, u
	return nil
}

// SignOut ends the session, and with it the person's event streams of that
// session.
func (c *Context) SignOut() error {
	id := c.session.ID
	c.session.Options.MaxAge = -1
	if err := c.saveSession(); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	c.server.config.Hub.Publish(sessionTopic(id))
	c.User = User{}
	return nil
}
