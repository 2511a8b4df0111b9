package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/a-h/templ"

	"sluis/migrations/testdb"
	"sluis/views"
	"sluis/web"
	"sluis/web/webtest"
)

var errDomain = errors.New("secret cause")

// console has a route for each thing that a handler can do.
func console(t *testing.T, adjust func(*web.Config)) *webtest.Console {
	t.Helper()
	return webtest.New(t, testdb.Pool(t), func(*webtest.Console) []web.Route {
		return []web.Route{
			{Method: "GET", Path: "/", Name: "home", Allow: web.Everyone, Handler: func(c *web.Context) error {
				return c.Render(http.StatusOK, views.Layout(c.Page("nav.dashboard", "dashboard")))
			}},
			{Method: "GET", Path: "/fail/:how", Name: "fail", Allow: web.Everyone, Handler: fail},
			{Method: "POST", Path: "/form", Name: "form", Allow: web.Everyone, Handler: func(c *web.Context) error {
				form, err := c.Form()
				if err != nil {
					return err
				}
				return c.Redirect(form.Get("to"))
			}},
			{Method: "POST", Path: "/flash", Name: "flash", Allow: web.Everyone, Handler: func(c *web.Context) error {
				if err := c.Flash(views.Flash{Tone: views.ToneOK, ID: "profile.saved"}); err != nil {
					return err
				}
				return c.Redirect("/")
			}},
		}
	}, adjust)
}

func fail(c *web.Context) error {
	switch c.Param("how") {
	case "domain":
		return fmt.Errorf("wrapped: %w", errDomain)
	case "own":
		return &web.Error{Status: http.StatusConflict, MessageID: "error.bad_request", Err: errDomain}
	case "panic":
		panic(errDomain)
	case "render":
		return c.Render(http.StatusOK, templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
			if _, err := io.WriteString(w, "half a page"); err != nil {
				return err
			}
			return errDomain
		}))
	case "late":
		return fmt.Errorf("query: %w", context.DeadlineExceeded)
	}
	return web.NotFound(errDomain)
}

func TestErrorsBecomePages(t *testing.T) {
	c := console(t, func(config *web.Config) {
		config.Classify = func(err error) *web.Error {
			if errors.Is(err, errDomain) && strings.HasPrefix(err.Error(), "wrapped") {
				return &web.Error{Status: http.StatusGone, MessageID: "error.too_many", Err: err}
			}
			return nil
		}
	})
	client := c.As(t, web.Viewer)
	for how, want := range map[string]struct {
		status int
		text   string
	}{
		"domain": {http.StatusGone, "Too many requests."},
		"own":    {http.StatusConflict, "The request could not be read."},
		"panic":  {http.StatusInternalServerError, "Something went wrong on our side."},
		"render": {http.StatusInternalServerError, "Something went wrong on our side."},
		"late":   {http.StatusGatewayTimeout, "This took too long."},
		"none":   {http.StatusNotFound, "There is nothing at this address."},
	} {
		for _, htmx := range []bool{false, true} {
			header := http.Header{}
			if htmx {
				header.Set("HX-Request", "true")
			}
			got := client.Do("GET", "/fail/"+how, nil, header)
			if got.Status != want.status || !strings.HasPrefix(got.Text(".error-text"), want.text) {
				t.Errorf("%s: %d %q", how, got.Status, got.Text(".error-text"))
			}
			if strings.Contains(got.Body, "secret") || strings.Contains(got.Body, "half a page") {
				t.Errorf("%s shows the cause or half a page", how)
			}
			if id := got.Header.Get("X-Request-Id"); id == "" || !strings.Contains(got.Body, id) {
				t.Errorf("%s: the page lacks the request id %q", how, id)
			}
			if whole := got.Doc.Find("header.top").Length() == 1; whole == htmx {
				t.Errorf("%s: whole page %t for htmx %t", how, whole, htmx)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	c := console(t, nil)
	got := c.As(t, web.Viewer).Get("/")
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
			"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Content-Type-Options":    "nosniff",
		"Referrer-Policy":           "same-origin",
		"Cache-Control":             "no-store",
		"Strict-Transport-Security": "",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got.Header.Get(name))
		}
	}
	secure := console(t, func(config *web.Config) { config.Secure = true })
	if got := secure.Anonymous(t).Get("/healthz"); got.Header.Get("Strict-Transport-Security") == "" {
		t.Error("https without HSTS")
	}
}

func TestRedirectsStayOnTheConsole(t *testing.T) {
	client := console(t, nil).As(t, web.Viewer)
	for to, want := range map[string]string{
		"/pairs?i=care": "/pairs?i=care", "": "/", "pairs": "/", "//evil.example": "/", `/\evil.example`: "/",
		"https://evil.example": "/", "/a\r\nX: y": "/", "/\t/evil.example": "/", "/%2f/evil.example": "/",
	} {
		got := client.Post("/form", url.Values{"to": {to}})
		if got.Status != http.StatusSeeOther || got.Header.Get("Location") != want {
			t.Errorf("%q leads to %d %q", to, got.Status, got.Header.Get("Location"))
		}
	}
	got := client.Do("POST", "/form", url.Values{"to": {"/pairs"}}, http.Header{"Hx-Request": {"true"}})
	if got.Status != http.StatusNoContent || got.Header.Get("HX-Redirect") != "/pairs" {
		t.Errorf("htmx: %d %q", got.Status, got.Header.Get("HX-Redirect"))
	}
}

func TestFormLimits(t *testing.T) {
	client := console(t, nil).As(t, web.Viewer)
	long := url.Values{"to": {strings.Repeat("x", 300<<10)}}
	many := url.Values{}
	for i := range 1001 {
		many.Add("a", fmt.Sprint(i))
	}
	for name, form := range map[string]url.Values{"long": long, "many": many} {
		if got := client.Post("/form", form); got.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", name, got.Status)
		}
	}
	if got := client.Post("/form?to=/url", url.Values{"to": {"/body"}}); got.Header.Get("Location") != "/body" {
		t.Errorf("the URL's value was taken: %q", got.Header.Get("Location"))
	}
}

func TestFlashIsShownOnce(t *testing.T) {
	client := console(t, nil).As(t, web.Viewer)
	client.Post("/flash", nil)
	client.Post("/flash", nil)
	if n := client.Get("/").Doc.Find(".flash.ok").Length(); n != 2 {
		t.Errorf("%d flashes", n)
	}
	if n := client.Get("/").Doc.Find(".flash").Length(); n != 0 {
		t.Errorf("%d flashes the second time", n)
	}
}

func TestSurroundings(t *testing.T) {
	failing := false
	c := console(t, func(config *web.Config) {
		config.Integrations = func(context.Context) ([]string, error) { return []string{"care", "feeds"}, nil }
		config.Chrome = func(_ context.Context, _ web.User, integration string) (views.Chrome, error) {
			if failing {
				return views.Chrome{Counts: map[string]views.Count{"quarantine": {}}}, errDomain
			}
			return views.Chrome{Counts: map[string]views.Count{"quarantine": {N: len(integration), Known: true}}}, nil
		}
	})
	client := c.As(t, web.Viewer)
	for path, want := range map[string]string{"/": "care 4", "/?i=feeds": "feeds 5", "/?i=unknown": "care 4"} {
		page := client.Get(path)
		if got := page.Text("#integration option[selected]") + " " + page.Text("#count-quarantine"); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	failing = true
	if got := client.Get("/").Text("#count-quarantine"); got != "no data" {
		t.Errorf("a count that is not known shows as %q", got)
	}
}

func TestProbesAndFiles(t *testing.T) {
	ready := errDomain
	c := console(t, func(config *web.Config) { config.Ready = func(context.Context) error { return ready } })
	client := c.Anonymous(t)
	if got := client.Get("/healthz"); got.Status != http.StatusOK {
		t.Errorf("healthz: %d", got.Status)
	}
	if got := client.Get("/readyz"); got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" || strings.Contains(got.Body, "secret") {
		t.Errorf("readyz: %d %s", got.Status, got.Body)
	}
	ready = nil
	if got := client.Get("/readyz"); got.Status != http.StatusOK {
		t.Errorf("readyz: %d", got.Status)
	}
	href, _ := c.As(t, web.Viewer).Get("/").Doc.Find("link[rel=stylesheet]").Attr("href")
	if got := client.Get(href); got.Status != http.StatusOK || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/css") {
		t.Errorf("style: %d %s", got.Status, got.Header.Get("Content-Type"))
	}
}
