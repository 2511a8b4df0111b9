package handlers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// SignalBoard gives the signals and takes an acknowledgement.
type SignalBoard interface {
	// Signals are all but the snapshots'; its cost does not grow with history.
	Signals(ctx context.Context, integration string) ([]gate.Signal, error)
	// Acknowledge covers what was counted up to upto, in the actor's name.
	Acknowledge(ctx context.Context, by gate.Actor, integration, signal string, upto int64, note string) error
}

// Rows of the two short lists below the signals.
const (
	recentDrops = 5
	recentItems = 5
)

// signalOrder is the order of signals that are equally urgent, and the list of
// those that must appear: one that cannot be read is "no data", not absent.
var signalOrder = []string{gate.SignalDrops, gate.SignalQuarantine, gate.SignalInFlight, gate.SignalPairs,
	gate.SignalReplay, gate.SignalSnapshot, gate.SignalClock}

var levelOrder = []gate.Level{gate.LevelAct, gate.LevelCheck, gate.LevelNoData, gate.LevelOK}

func (d desk) dashboard(c *web.Context) error {
	p := d.dashboardModel(c.Ctx(), c)
	live := p.Page.LiveURL
	p.Page = c.Page("dashboard.title", "dashboard")
	p.Page.LiveURL = live
	return c.Render(http.StatusOK, views.Dashboard(p))
}

func (d desk) dashboardStream(c *web.Context) error {
	return c.SSE(topics(c.Integration(), "signals", "items", "pairs", "in_flight", "snapshots"),
		func(ctx context.Context, send web.Send) error {
			return send("", views.DashboardLive(d.dashboardModel(ctx, c)))
		})
}

// dashboardModel reads everything anew. What cannot be read is said in its
// place; the rest of the page stands.
func (d desk) dashboardModel(ctx context.Context, c *web.Context) views.DashboardPage {
	integration := c.Integration()
	signals := d.signals(ctx, c, integration)
	p := views.DashboardPage{
		Page:     views.Page{Now: c.Now, Lang: i18n.Lang(ctx), Integration: integration, LiveURL: link(integration, "/stream/dashboard")},
		Mode:     d.modeLine(ctx, c, integration),
		DropsURL: link(integration, "/drops"),
		ItemsURL: link(integration, "/quarantine"),
	}
	counts := map[gate.Level]int{}
	for _, s := range signals {
		counts[s.Level]++
		p.Signals = append(p.Signals, signalRow(ctx, integration, s))
		if s.ID == gate.SignalDrops {
			p.Ack = ackFormOf(ctx, c, integration, s)
		}
	}
	p.Summary = summary(ctx, counts)
	p.Drops, p.NoDrops = d.recentDrops(ctx, c, integration)
	p.Items, p.NoItems = d.recentItems(ctx, c, integration)
	return p
}

// signals are all signals, the most urgent first.
func (d desk) signals(ctx context.Context, c *web.Context, integration string) []gate.Signal {
	known := map[string]gate.Signal{}
	list, err := d.gate.Signals(ctx, integration)
	if err != nil {
		d.failed(ctx, c, "signals", err)
	}
	for _, s := range list {
		known[s.ID] = s
	}
	if s, err := d.snapshot.Signal(ctx, integration); err != nil {
		d.failed(ctx, c, "snapshot signal", err)
	} else {
		known[gate.SignalSnapshot] = s
	}
	all := make([]gate.Signal, 0, len(signalOrder))
	for _, id := range signalOrder {
		s, ok := known[id]
		switch {
		case !ok:
			s = gate.Signal{ID: id, Level: gate.LevelNoData, Why: "unreadable"}
		case c.Now.Sub(s.CheckedAt) > views.FigureLife:
			s.Level, s.Why = gate.LevelNoData, "stale"
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b gate.Signal) int {
		return slices.Index(levelOrder, a.Level) - slices.Index(levelOrder, b.Level)
	})
	return all
}

// failed logs why a part of a page cannot be read, under the request's id that
// the page shows.
func (d desk) failed(ctx context.Context, c *web.Context, what string, err error) {
	d.log.ErrorContext(ctx, "part of a page failed", "request_id", c.RequestID, "part", what, "error", err)
}

func summary(ctx context.Context, counts map[gate.Level]int) string {
	var parts []string
	for _, level := range []gate.Level{gate.LevelAct, gate.LevelCheck, gate.LevelNoData} {
		if n := counts[level]; n > 0 {
			parts = append(parts, i18n.N(ctx, "dashboard.count."+string(level), n))
		}
	}
	if len(parts) == 0 {
		return i18n.T(ctx, "dashboard.calm")
	}
	return strings.Join(parts, ", ")
}

var levelTones = map[gate.Level]string{gate.LevelAct: "crit", gate.LevelCheck: "warn", gate.LevelOK: "ok", gate.LevelNoData: "unk"}

// signalPages is where each signal's next step is taken.
var signalPages = map[string]string{
	gate.SignalDrops: "/drops", gate.SignalQuarantine: "/quarantine", gate.SignalInFlight: "/in-flight",
	gate.SignalPairs: "/pairs", gate.SignalReplay: "/drops", gate.SignalSnapshot: "/snapshots", gate.SignalClock: "/integrations",
}

func signalRow(ctx context.Context, integration string, s gate.Signal) views.SignalRow {
	tone, ok := levelTones[s.Level]
	if !ok {
		tone = "unk"
	}
	r := views.SignalRow{
		ID: s.ID, Mark: views.Mark{Tone: tone, Text: i18n.T(ctx, "state."+tone)},
		Name: i18n.T(ctx, "signal."+s.ID), Value: signalValue(ctx, s), Why: signalWhy(ctx, s),
		Since: s.Since, CheckedAt: s.CheckedAt, NoData: tone == "unk",
		Href: link(integration, signalPages[s.ID]), LinkText: i18n.T(ctx, "signal."+s.ID+".next", "Count", s.Count),
	}
	if s.ID == gate.SignalDrops && s.Level != gate.LevelNoData {
		r.Href = link(integration, "/drops", "seen", "no")
		if s.Level != gate.LevelAct {
			r.Href, r.LinkText = link(integration, "/drops"), i18n.T(ctx, "signal.drops.all")
		}
	}
	return r
}

func signalValue(ctx context.Context, s gate.Signal) string {
	if s.Level == gate.LevelNoData {
		return i18n.T(ctx, "nav.nodata")
	}
	switch s.ID {
	case gate.SignalReplay:
		return i18n.Percent(ctx, s.Ratio)
	case gate.SignalSnapshot:
		return i18n.Duration(s.Age)
	case gate.SignalClock:
		return i18n.Decimal(ctx, s.Age.Seconds(), 1) + " s"
	}
	return i18n.Number(ctx, s.Count)
}

// signalWhy is the gate's reason in words: durations as hours, minutes and
// seconds, instants with their offset, ratios as percentages.
func signalWhy(ctx context.Context, s gate.Signal) string {
	if s.Why == "unreadable" || s.Why == "stale" {
		return i18n.T(ctx, "signal."+s.Why)
	}
	kv := []any{"Count", s.Count, "Age", i18n.Duration(s.Age), "Ratio", i18n.Percent(ctx, s.Ratio),
		"AckedBy", s.AckedBy, "AckedAt", i18n.Time(ctx, s.AckedAt)}
	for name, value := range s.WhyArgs {
		switch v := value.(type) {
		case time.Duration:
			value = i18n.Duration(v)
		case time.Time:
			value = i18n.Time(ctx, v)
		case float64:
			value = i18n.Percent(ctx, v)
		}
		kv = append(kv, name, value)
	}
	return i18n.T(ctx, "signal."+s.ID+"."+s.Why, kv...)
}

func ackFormOf(ctx context.Context, c *web.Context, integration string, s gate.Signal) views.AckForm {
	return views.AckForm{
		Action: link(integration, "/signals/"+gate.SignalDrops+"/acknowledge"), UpTo: s.UpTo,
		Count: i18n.Number(ctx, s.Count), Needed: s.UpTo > 0 && s.Count > 0,
		Disabled: disabledFor(c), Person: c.User.Display, AckedBy: s.AckedBy, AckedAt: s.AckedAt,
	}
}

func (d desk) modeLine(ctx context.Context, c *web.Context, integration string) views.IntegrationMode {
	i, err := d.gate.Integration(ctx, integration)
	if err != nil {
		d.failed(ctx, c, "integration", err)
		return views.IntegrationMode{}
	}
	return views.IntegrationMode{Known: true, Text: i18n.T(ctx, "mode."+string(i.Mode)+".explain"), Frozen: i.Frozen,
		Href: link(integration, "/integrations")}
}

func (d desk) recentDrops(ctx context.Context, c *web.Context, integration string) ([]views.DropRow, views.Empty) {
	groups, err := d.gate.Drops(ctx, integration, 0, recentDrops)
	if err != nil {
		d.failed(ctx, c, "drops", err)
		return nil, views.Empty{Text: i18n.T(ctx, "desk.unreadable"), RequestID: c.RequestID}
	}
	return dropRows(ctx, integration, groups), views.Empty{Text: i18n.T(ctx, "drops.none")}
}

func (d desk) recentItems(ctx context.Context, c *web.Context, integration string) ([]views.ItemRow, views.Empty) {
	items, err := d.gate.Items(ctx, gate.ItemFilter{Integration: integration, States: []gate.ItemState{gate.ItemOpen}, Limit: recentItems})
	if err != nil {
		d.failed(ctx, c, "quarantine", err)
		return nil, views.Empty{Text: i18n.T(ctx, "desk.unreadable"), RequestID: c.RequestID}
	}
	rows := make([]views.ItemRow, len(items))
	for i, item := range items {
		rows[i] = itemRow(ctx, item)
	}
	return rows, views.Empty{Text: i18n.T(ctx, "quarantine.none")}
}

// acknowledge takes note of what a signal counted up to what the person saw, in
// their name.
func (d desk) acknowledge(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	if c.Param("signal") != gate.SignalDrops {
		return web.NotFound(fmt.Errorf("signal %q cannot be acknowledged", c.Param("signal")))
	}
	upto, err := number(form.Get("upto"))
	if err != nil {
		return err
	}
	integration := c.Integration()
	if err := d.gate.Acknowledge(c.Ctx(), person(c), integration, gate.SignalDrops, upto, strings.TrimSpace(form.Get("note"))); err != nil {
		return err
	}
	if err := c.Flash(views.Flash{Tone: views.ToneOK, ID: "ack.flash", Args: []string{"Name", c.User.Display}}); err != nil {
		return err
	}
	return c.Redirect(link(integration, "/"))
}
