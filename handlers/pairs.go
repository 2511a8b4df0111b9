package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// PairDesk reads hash pairs, takes a verdict and asks for a scan.
type PairDesk interface {
	Pairs(ctx context.Context, f gate.PairFilter) ([]gate.Pair, error)
	CountPairs(ctx context.Context, f gate.PairFilter) (int64, error)
	Pair(ctx context.Context, id int64) (gate.Pair, error)
	JudgePair(ctx context.Context, by gate.Actor, id, version int64, verdict gate.PairState, note string) (gate.Pair, error)
	RequestScan(ctx context.Context, by gate.Actor, integration string) error
	LastScan(ctx context.Context, integration string) (time.Time, error)
}

// pairStates are the states in the order of their tabs.
var pairStates = []gate.PairState{gate.PairOpen, gate.PairDuplicate, gate.PairDistinct, gate.PairUndone}

// pairFilter is the filter of the list as the URL holds it; no state is open.
func pairFilter(c *web.Context) (gate.PairFilter, error) {
	f := gate.PairFilter{Integration: c.Integration(), Limit: listSize}
	switch state := c.QueryParam("state"); state {
	case "":
		f.States = []gate.PairState{gate.PairOpen}
	case "all":
	default:
		f.States = []gate.PairState{gate.PairState(state)}
	}
	var err error
	f.Before, err = number(c.QueryParam("before"))
	return f, err
}

func (d desk) pairs(c *web.Context) error {
	ctx, integration, state := c.Ctx(), c.Integration(), c.QueryParam("state")
	f, err := pairFilter(c)
	if err != nil {
		return err
	}
	pairs, err := d.gate.Pairs(ctx, f)
	if err != nil {
		return err
	}
	p := views.PairsPage{
		Page: c.Page("pairs.title", "pairs"), Scan: d.scanForm(c),
		Empty: listEmpty(ctx, state != "", "pairs.none", "pairs.none_filtered", link(integration, "/pairs")),
		Pager: views.Pager{Shown: len(pairs), CSV: link(integration, "/pairs.csv", "state", state)},
	}
	var wrong int64
	for _, s := range pairStates {
		n, err := d.gate.CountPairs(ctx, gate.PairFilter{Integration: integration, States: []gate.PairState{s}})
		if err != nil {
			return err
		}
		tab := views.Tab{Text: i18n.T(ctx, "pair.state."+string(s)), Count: i18n.Number(ctx, n), Current: state == string(s)}
		tab.Href = link(integration, "/pairs", "state", string(s))
		if s == gate.PairOpen {
			tab.Href, tab.Current = link(integration, "/pairs"), state == "" || state == string(s)
		}
		if s == gate.PairOpen || s == gate.PairDuplicate {
			wrong += n
		}
		if tab.Current {
			p.Pager.Total = n
		}
		p.Tabs = append(p.Tabs, tab)
	}
	if wrong > 0 {
		p.PlanHref, p.PlanText = link(integration, "/rollbacks/new"), i18n.N(ctx, "pairs.wrong", int(wrong))
	}
	for _, pair := range pairs {
		p.Rows = append(p.Rows, pairRow(ctx, pair))
	}
	if f.Before > 0 {
		p.Pager.First = link(integration, "/pairs", "state", state)
	}
	if len(pairs) == listSize {
		p.Pager.Next = link(integration, "/pairs", "state", state, "before", itoa(pairs[len(pairs)-1].ID))
	}
	return c.Render(http.StatusOK, views.Pairs(p))
}

func pairRow(ctx context.Context, p gate.Pair) views.PairRow {
	r := views.PairRow{
		Name: pairName(p.ID), Href: link(p.Integration, pairPath(p.ID)), Mark: pairMark(ctx, p.State), Subject: p.Subject,
		What: what(ctx, p.Second.Mutation), First: p.First.Event.ID, FirstAt: p.First.ReceivedAt,
		Second: p.Second.Event.ID, SecondAt: p.Second.ReceivedAt,
	}
	if p.DecidedBy != "" {
		r.Decided = i18n.T(ctx, "item.by", "By", p.DecidedBy)
	}
	return r
}

// scanForm tells of the last scan. What cannot be read is "no data", never
// "no pairs".
func (d desk) scanForm(c *web.Context) views.ScanForm {
	ctx, integration := c.Ctx(), c.Integration()
	f := views.ScanForm{Action: link(integration, "/pairs/scan"), Disabled: disabledFor(c)}
	at, err := d.gate.LastScan(ctx, integration)
	if err != nil {
		d.failed(ctx, c, "last scan", err)
		f.Failed = true
		return f
	}
	f.LastAt = at
	records, err := d.audit.List(ctx, audit.Filter{Integration: integration, Action: "pairs.scanned", Limit: 1})
	if err != nil {
		d.failed(ctx, c, "result of the last scan", err)
		return f
	}
	if len(records) == 1 {
		var detail struct {
			Found *int `json:"found"`
		}
		if json.Unmarshal(records[0].Detail, &detail) == nil && detail.Found != nil {
			f.Result = i18n.N(ctx, "pairs.found", *detail.Found)
		}
	}
	return f
}

func (d desk) scanPairs(c *web.Context) error {
	integration := c.Integration()
	if err := d.gate.RequestScan(c.Ctx(), person(c), integration); err != nil {
		return err
	}
	if err := c.Flash(views.Flash{Tone: views.ToneInfo, ID: "pairs.scan_flash"}); err != nil {
		return err
	}
	return c.Redirect(link(integration, "/pairs"))
}

func (d desk) pairsCSV(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	f, err := pairFilter(c)
	if err != nil {
		return err
	}
	f.Before, f.Limit = 0, 500
	pairs, err := d.gate.Pairs(ctx, f)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "pairs-"+integration, c.T("pairs.pair"), c.T("item.state"), c.T("desk.subject"), c.T("item.what"),
		c.T("pairs.first"), c.T("event.id"), c.T("event.received"), c.T("pairs.second"), c.T("event.id"), c.T("event.received"),
		c.T("item.decided_at"), c.T("item.decided_who"), c.T("item.note"))
	if err != nil {
		return err
	}
	for len(pairs) > 0 {
		for _, p := range pairs {
			if err := s.row(pairName(p.ID), pairMark(ctx, p.State).Text, p.Subject, what(ctx, p.Second.Mutation),
				mutationName(p.First.ID), p.First.Event.ID, s.time(p.First.ReceivedAt),
				mutationName(p.Second.ID), p.Second.Event.ID, s.time(p.Second.ReceivedAt), s.time(p.DecidedAt), p.DecidedBy, p.Note); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil || len(pairs) < f.Limit {
			return err
		}
		f.Before = pairs[len(pairs)-1].ID
		if pairs, err = d.gate.Pairs(ctx, f); err != nil {
			return err
		}
	}
	return s.flush()
}

func (d desk) pair(c *web.Context) error {
	id, err := idParam(c)
	if err != nil {
		return err
	}
	return d.pairPage(c, http.StatusOK, id, typed{})
}

func (d desk) pairPage(c *web.Context, status int, id int64, t typed) error {
	ctx := c.Ctx()
	pair, err := d.gate.Pair(ctx, id)
	if err != nil {
		return err
	}
	timeline, err := d.timeline(ctx, pair.Integration, pairName(id))
	if err != nil {
		return err
	}
	p := views.PairPage{
		Page: c.Page("pair.title", "pairs", "Name", pairName(id)), Name: pairName(id), Heading: what(ctx, pair.Second.Mutation),
		Crumbs: []views.Crumb{{Text: c.T("pairs.title"), Href: link(pair.Integration, "/pairs")}},
		Mark:   pairMark(ctx, pair.State), Note: pair.Note, Conflict: t.conflict, Timeline: timeline,
		Gap: c.T("pair.gap", "Gap", i18n.Duration(pair.Second.ReceivedAt.Sub(pair.First.ReceivedAt))),
		Copies: []views.CopyView{
			copyView(ctx, c.T("pairs.first"), pair.First, pair.FirstTouched),
			copyView(ctx, c.T("pairs.second"), pair.Second, pair.SecondTouched),
		},
		Diff: views.NewDiff(c.T("pair.diff"), []string{mutationName(pair.First.ID), mutationName(pair.Second.ID)},
			pair.First.Mutation.Body, pair.Second.Mutation.Body),
		Verdict: views.VerdictForm{
			Show: pair.State == gate.PairOpen, Action: link(pair.Integration, pairPath(id)+"/verdict"), Version: pair.Version,
			Note: t.note, Error: t.failure, Disabled: disabledFor(c),
		},
	}
	p.Page.Integration = pair.Integration
	if !pair.DecidedAt.IsZero() {
		p.Decided = c.T("item.decided_by", "State", c.T("pair.state."+string(pair.State)), "By", pair.DecidedBy, "At", i18n.Time(ctx, pair.DecidedAt))
	}
	if pair.State == gate.PairOpen || pair.State == gate.PairDuplicate {
		p.PlanHref = link(pair.Integration, "/rollbacks/new")
	}
	return c.Render(status, views.Pair(p))
}

func copyView(ctx context.Context, heading string, m gate.MutationRecord, touched int) views.CopyView {
	v := views.CopyView{Name: mutationName(m.ID), Href: link(m.Integration, mutationPath(m.ID)), Heading: heading, ReceivedAt: m.ReceivedAt,
		Touched: i18n.N(ctx, "pair.touched", touched)}
	add := func(name, text, href string, mono bool) {
		if text != "" {
			v.Facts = append(v.Facts, views.Fact{Name: i18n.T(ctx, name), Text: text, Href: href, Mono: mono})
		}
	}
	add("event.event", strings.TrimSpace(m.Event.Account+" "+m.Event.ID), link(m.Integration, eventPath(m.Event.Account, m.Event.ID)), true)
	add("event.occurred", m.Event.OccurredAt, "", true)
	add("mutation.agent", m.Agent, "", false)
	add("mutation.run", m.Run, "", true)
	add("mutation.effect", m.Effect, "", true)
	add("mutation.state", stateMark(ctx, m).Text, "", false)
	if id := m.EntityID(); id != "" {
		add("history.entity", m.Mutation.Type+" "+id, link(m.Integration, entityPath(m.Mutation.Type, id)), false)
	}
	return v
}

// verdict says whether the two are one intent; bound to the version that the
// person saw.
func (d desk) verdict(c *web.Context) error {
	id, err := idParam(c)
	if err != nil {
		return err
	}
	form, err := c.Form()
	if err != nil {
		return err
	}
	version, err := number(form.Get("version"))
	if err != nil {
		return err
	}
	state := gate.PairState(form.Get("verdict"))
	if state != gate.PairDuplicate && state != gate.PairDistinct {
		return &web.Error{Status: http.StatusBadRequest, MessageID: "error.bad_request", Err: fmt.Errorf("verdict %q", state)}
	}
	note := strings.TrimSpace(form.Get("note"))
	if note == "" {
		return d.pairPage(c, http.StatusUnprocessableEntity, id, typed{failure: c.T("item.note_required")})
	}
	pair, err := d.gate.JudgePair(c.Ctx(), person(c), id, version, state, note)
	var decided *gate.DecidedError
	switch {
	case errors.As(err, &decided) && decided.By == c.User.Name && decided.State == string(state):
		if pair, err = d.gate.Pair(c.Ctx(), id); err != nil {
			return err
		}
	case errors.Is(err, gate.ErrStale):
		return d.pairPage(c, http.StatusConflict, id, typed{note: note, conflict: lostRace(c.Ctx(), decided)})
	case errors.Is(err, gate.ErrMalformed):
		return d.pairPage(c, http.StatusUnprocessableEntity, id, typed{note: note, failure: c.T("item.refused")})
	case err != nil:
		return err
	}
	return d.nextPair(c, pair)
}

// nextPair opens the next open pair, the newest below this one, else the newest
// of all; without any it shows the list.
func (d desk) nextPair(c *web.Context, judged gate.Pair) error {
	flash := views.Flash{Tone: views.ToneOK, ID: "pair.flash." + string(judged.State), Args: []string{"Name", pairName(judged.ID)},
		Href: link(judged.Integration, pairPath(judged.ID)), LinkText: "item.view"}
	if err := c.Flash(flash); err != nil {
		return err
	}
	for _, before := range []int64{judged.ID, 0} {
		open, err := d.gate.Pairs(c.Ctx(), gate.PairFilter{Integration: judged.Integration, States: []gate.PairState{gate.PairOpen}, Before: before, Limit: 1})
		if err != nil {
			return err
		}
		if len(open) == 1 {
			return c.Redirect(link(judged.Integration, "/pairs/"+strconv.FormatInt(open[0].ID, 10)))
		}
	}
	return c.Redirect(link(judged.Integration, "/pairs"))
}
