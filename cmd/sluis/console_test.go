package main

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
)

// consoleClient is a signed-in person without a browser.
type consoleClient struct {
	base   string
	client *http.Client
}

// signIn signs in with the demo's planner.
func signIn(t *testing.T, p *process) *consoleClient {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &consoleClient{base: p.ready.Console, client: &http.Client{Jar: jar, Timeout: 90 * time.Second}}
	if _, err := c.post("/signin", url.Values{"name": {p.ready.User}, "password": {p.ready.Password}, "next": {"/"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

// page reads a page; a status of 400 and more is an error.
func (c *consoleClient) page(resp *http.Response, err error) (*goquery.Document, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	doc, err := goquery.NewDocumentFromReader(resp.Body)
	if err != nil {
		return nil, err
	}
	doc.Url = resp.Request.URL
	if resp.StatusCode >= 400 {
		return doc, fmt.Errorf("%s %s: %s: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status,
			strings.Join(strings.Fields(doc.Find("main").Text()), " "))
	}
	return doc, nil
}

func (c *consoleClient) get(path string) (*goquery.Document, error) {
	return c.page(c.client.Get(c.base + path))
}

func (c *consoleClient) post(path string, form url.Values) (*goquery.Document, error) {
	req, err := http.NewRequest(http.MethodPost, c.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", c.base)
	return c.page(c.client.Do(req))
}

// submit posts the form that a selector finds, with all its fields.
func (c *consoleClient) submit(t *testing.T, doc *goquery.Document, selector string, extra url.Values) *goquery.Document {
	t.Helper()
	form := doc.Find(selector)
	if form.Length() != 1 {
		t.Fatalf("%s: %d forms match %q: %s", doc.Url.Path, form.Length(), selector, strings.Join(strings.Fields(doc.Find("main").Text()), " "))
	}
	values := url.Values{}
	form.Find("input[name], textarea[name], select[name]").Each(func(_ int, s *goquery.Selection) {
		name, _ := s.Attr("name")
		kind, _ := s.Attr("type")
		_, checked := s.Attr("checked")
		if (kind == "radio" || kind == "checkbox") && !checked {
			return
		}
		value, _ := s.Attr("value")
		values.Add(name, value)
	})
	for name, v := range extra {
		values[name] = v
	}
	action, _ := form.Attr("action")
	next, err := c.post(action, values)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// planRollback plans from the proposed snapshot with the proposed suspects and
// waits for the dry run; it returns the page's path.
func (c *consoleClient) planRollback(t *testing.T) string {
	t.Helper()
	doc, err := c.get("/rollbacks/new")
	if err != nil {
		t.Fatal(err)
	}
	path := c.submit(t, doc, `form[action^="/rollbacks"][method=post]`, nil).Url.Path
	eventually(t, "the dry run is done", time.Minute, func() bool {
		return strings.Contains(c.rollbackState(t, path), "ready")
	})
	return path
}

// rollbackState is the state as the page names it.
func (c *consoleClient) rollbackState(t *testing.T, path string) string {
	t.Helper()
	doc, err := c.get(path)
	if err != nil {
		t.Fatal(err)
	}
	state, _ := doc.Find("[data-rollback-state]").Attr("data-rollback-state")
	return state
}

// approve approves what the page shows.
func (c *consoleClient) approve(t *testing.T, path string) {
	t.Helper()
	doc, err := c.get(path)
	if err != nil {
		t.Fatal(err)
	}
	c.submit(t, doc, `form[action*="/approve"]`, nil)
}

// setMode switches the gate on the integrations page.
func (c *consoleClient) setMode(t *testing.T, mode string) {
	t.Helper()
	doc, err := c.get("/integrations")
	if err != nil {
		t.Fatal(err)
	}
	c.submit(t, doc, `form[action*="/integrations/care/mode"]`, url.Values{"mode": {mode}, "note": {"test"}})
}

// take asks for a snapshot now.
func (c *consoleClient) take() error {
	_, err := c.post("/snapshots/take?i="+care, url.Values{"i": {care}})
	return err
}
