// Package views holds the templ components of the console and the models that
// they render. A model is made for exactly one page and carries plain values;
// the package reads no database and knows neither the gate nor the HTTP server.
// Text comes from views/i18n through the language in the context.
package views

import (
	"net/url"
	"time"
)

// Page is what every page needs around its content: the top navigation, the
// notices and the person's settings. web's Context makes it.
type Page struct {
	Title        string // already in the person's language
	Nav          string // key of the active entry of the navigation, "" for none
	User         User   // zero before sign-in
	Integration  string // chosen integration, "" when there is none
	Integrations []string
	Counts       map[string]Count // by key of the navigation entry
	Now          time.Time
	Lang         string // "en" or "nl"
	Theme        string // "light", "dark" or "" for the system's
	Keys         bool   // single keys are on
	Path         string // path and query of this page, for forms that come back to it
	LiveURL      string // event stream of this page, "" for a page that does not live
	Banners      []Banner
	Flashes      []Flash
}

// User is the signed-in person as pages show them.
type User struct {
	Name    string // sign-in name
	Display string
	Role    string // viewer, oncall, planner or admin
}

// SignedIn reports whether there is a person.
func (u User) SignedIn() bool { return u.Name != "" }

// Decides reports whether the person may release, reject and settle.
func (u User) Decides() bool { return u.Role == "oncall" || u.Plans() }

// Plans reports whether the person may approve rollbacks.
func (u User) Plans() bool { return u.Role == "planner" || u.Role == "admin" }

// Admin reports whether the person may manage users.
func (u User) Admin() bool { return u.Role == "admin" }

// Count is a figure beside an entry of the navigation. One that is not known
// is shown as "no data", never as zero.
type Count struct {
	N     int
	Known bool
}

// Tone says how loud a notice is.
type Tone string

// The tones, with the marks of the console's states: act now, check, in range,
// and plain information.
const (
	ToneCrit Tone = "crit"
	ToneWarn Tone = "warn"
	ToneOK   Tone = "ok"
	ToneInfo Tone = "info"
)

// Banner is a notice that stands until its cause is gone.
type Banner struct {
	Tone     Tone
	Text     string // already in the person's language
	Href     string
	LinkText string
}

// Flash is a notice that is shown once, after an action. It is kept in the
// session on the server, never in the URL. Text is a message id with its
// placeholders, so that it is translated when it is shown.
type Flash struct {
	Tone     Tone     `json:"tone"`
	ID       string   `json:"id"`
	Args     []string `json:"args,omitempty"` // names and values in turn
	Href     string   `json:"href,omitempty"`
	LinkText string   `json:"link,omitempty"` // message id
}

// Chrome is what the surroundings of a page need from the gate: what waits, and
// what everyone must know.
type Chrome struct {
	Counts  map[string]Count
	Banners []Banner
}

// NavItem is an entry of the top navigation.
type NavItem struct {
	Key   string // also the key of its Count
	Path  string
	Label string // message id
	Jump  string // key after g, "" for none
	Admin bool   // shown to administrators only
}

// Nav lists the entries of the top navigation in their order.
var Nav = []NavItem{
	{Key: "dashboard", Path: "/", Label: "nav.dashboard", Jump: "d"},
	{Key: "quarantine", Path: "/quarantine", Label: "nav.quarantine", Jump: "q"},
	{Key: "inflight", Path: "/in-flight", Label: "nav.inflight", Jump: "i"},
	{Key: "pairs", Path: "/pairs", Label: "nav.pairs", Jump: "p"},
	{Key: "rollback", Path: "/rollbacks", Label: "nav.rollback", Jump: "r"},
	{Key: "snapshots", Path: "/snapshots", Label: "nav.snapshots", Jump: "s"},
	{Key: "history", Path: "/history", Label: "nav.history", Jump: "h"},
	{Key: "audit", Path: "/audit", Label: "nav.audit", Jump: "a"},
	{Key: "integrations", Path: "/integrations", Label: "nav.integrations"},
	{Key: "users", Path: "/users", Label: "nav.users", Admin: true},
}

// IntegrationParam is the query parameter that carries the chosen integration.
const IntegrationParam = "i"

// Href returns path with the chosen integration, so that the choice goes along
// from page to page in the URL.
func (p Page) Href(path string) string {
	if p.Integration == "" {
		return path
	}
	return path + "?" + url.Values{IntegrationParam: {p.Integration}}.Encode()
}

// BasePath is Path without its query.
func (p Page) BasePath() string {
	u, err := url.Parse(p.Path)
	if err != nil {
		return "/"
	}
	return u.Path
}

// Query returns the parameters of Path except the integration, as hidden
// fields for the integration selector.
func (p Page) Query() []Param {
	u, err := url.Parse(p.Path)
	if err != nil {
		return nil
	}
	return params(u.Query(), IntegrationParam, "page", "after")
}
