package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// ItemDesk reads quarantine items and decides on them.
type ItemDesk interface {
	Items(ctx context.Context, f gate.ItemFilter) ([]gate.Item, error)
	CountItems(ctx context.Context, f gate.ItemFilter) (int64, error)
	Item(ctx context.Context, id int64) (gate.Item, error)
	// NextItem is the open item to look at after the one given (0: none), where
	// that one stands among the open items, and how many there are.
	NextItem(ctx context.Context, integration string, after int64) (next int64, position, total int, err error)
	Release(ctx context.Context, by gate.Actor, id, version int64, note string) (gate.Item, error)
	UndoRelease(ctx context.Context, by gate.Actor, id, version int64) (gate.Item, error)
	Reject(ctx context.Context, by gate.Actor, id, version int64, note string) (gate.Item, error)
}

// itemStates are the states in the order of their tabs.
var itemStates = []gate.ItemState{gate.ItemOpen, gate.ItemReleasing, gate.ItemReleased, gate.ItemRejected, gate.ItemSuperseded}

// heldReasons are the reasons for which something is held.
var heldReasons = []gate.Reason{
	gate.ReasonKeyConflict, gate.ReasonOtherRun, gate.ReasonSkew, gate.ReasonRolledBack, gate.ReasonFrozen,
	gate.ReasonMissingEventID, gate.ReasonMalformedTimestamp, gate.ReasonNoOffset, gate.ReasonLeapSecond,
	gate.ReasonUnsupportedTimestamp, gate.ReasonMalformedBody, gate.ReasonUnsafeNumber, gate.ReasonHashPair,
	gate.ReasonUncertainOutcome,
}

// itemQuery is the filter of the list as the URL holds it.
type itemQuery struct {
	state  string // a state, or "all"; empty means open
	reason string
	search string
	before int64
}

func readItemQuery(get func(string) string) (itemQuery, error) {
	q := itemQuery{state: get("state"), reason: get("reason"), search: strings.TrimSpace(get("q"))}
	if q.state == "" {
		q.state = string(gate.ItemOpen)
	}
	var err error
	q.before, err = number(get("before"))
	return q, err
}

func (q itemQuery) filter(integration string) gate.ItemFilter {
	f := gate.ItemFilter{Integration: integration, Reason: gate.Reason(q.reason), Search: q.search, Before: q.before, Limit: listSize}
	if q.state != "all" {
		f.States = []gate.ItemState{gate.ItemState(q.state)}
	}
	return f
}

// filtered reports whether more than the state narrows the list.
func (q itemQuery) filtered() bool { return q.reason != "" || q.search != "" }

func (q itemQuery) link(integration, path string, kv ...string) string {
	state := q.state
	if state == string(gate.ItemOpen) {
		state = ""
	}
	return link(integration, path, append([]string{"state", state, "reason", q.reason, "q", q.search}, kv...)...)
}

func (d desk) quarantine(c *web.Context) error {
	q, err := readItemQuery(c.QueryParam)
	if err != nil {
		return err
	}
	after, err := number(c.QueryParam("after"))
	if err != nil {
		return err
	}
	return d.quarantinePage(c, http.StatusOK, q, after, views.BulkForm{})
}

// quarantinePage renders the list; bulk holds what was typed and what is wrong
// with it, after is the item that was decided just before.
func (d desk) quarantinePage(c *web.Context, status int, q itemQuery, after int64, bulk views.BulkForm) error {
	ctx, integration := c.Ctx(), c.Integration()
	items, err := d.gate.Items(ctx, q.filter(integration))
	if err != nil {
		return err
	}
	decided, err := d.decidedLine(ctx, c, after)
	if err != nil {
		return err
	}
	p := views.QuarantinePage{
		Page:   c.Page("quarantine.title", "quarantine"),
		Filter: itemFilterBar(ctx, integration, q), Decided: decided,
		Empty:   listEmpty(ctx, q.filtered() || q.state != string(gate.ItemOpen), "quarantine.none", "quarantine.none_filtered", link(integration, "/quarantine")),
		Pager:   views.Pager{Shown: len(items), CSV: q.link(integration, "/quarantine.csv")},
		ShowNew: q.link(integration, "/quarantine"),
	}
	whole := q.filter(integration)
	whole.Before = 0
	if p.Pager.Total, err = d.gate.CountItems(ctx, whole); err != nil {
		return err
	}
	if p.Tabs, err = d.itemTabs(ctx, integration, q); err != nil {
		return err
	}
	for _, item := range items {
		p.Rows = append(p.Rows, itemRow(ctx, item))
	}
	if q.before > 0 {
		p.Pager.First = q.link(integration, "/quarantine")
	}
	if len(items) == listSize {
		p.Pager.Next = q.link(integration, "/quarantine", "before", itoa(items[len(items)-1].ID))
	}
	cutoff, err := d.cutoff(ctx, integration, items, q)
	if err != nil {
		return err
	}
	p.Bulk = bulkForm(c, q, items, bulk, cutoff, p.Pager)
	p.Page.LiveURL = q.link(integration, "/stream/quarantine", "cutoff", strconv.FormatInt(cutoff, 10),
		"ids", idList(items), "watch", itoa(after))
	return c.Render(status, views.Quarantine(p))
}

// cutoff is the highest id that could be on the list when the page is made:
// what comes later is neither on it nor covered by "all that match".
func (d desk) cutoff(ctx context.Context, integration string, shown []gate.Item, q itemQuery) (int64, error) {
	if q.before == 0 && len(shown) > 0 {
		return shown[0].ID, nil
	}
	newest, err := d.gate.Items(ctx, gate.ItemFilter{Integration: integration, Limit: 1})
	if err != nil {
		return 0, err
	}
	return first(newest), nil
}

func first(items []gate.Item) int64 {
	if len(items) == 0 {
		return 0
	}
	return items[0].ID
}

func last(items []gate.Item) int64 {
	if len(items) == 0 {
		return 0
	}
	return items[len(items)-1].ID
}

func (d desk) itemTabs(ctx context.Context, integration string, q itemQuery) ([]views.Tab, error) {
	var tabs []views.Tab
	for _, s := range itemStates {
		n, err := d.gate.CountItems(ctx, gate.ItemFilter{Integration: integration, States: []gate.ItemState{s}})
		if err != nil {
			return nil, err
		}
		state := string(s)
		if s == gate.ItemOpen {
			state = ""
		}
		tabs = append(tabs, views.Tab{Text: i18n.T(ctx, "item.state."+string(s)), Count: i18n.Number(ctx, n),
			Href: link(integration, "/quarantine", "state", state), Current: q.state == string(s) && !q.filtered()})
	}
	return tabs, nil
}

func itemFilterBar(ctx context.Context, integration string, q itemQuery) views.Filter {
	states := []views.Option{{Value: "all", Label: i18n.T(ctx, "list.all"), Selected: q.state == "all"}}
	for _, s := range itemStates {
		states = append(states, views.Option{Value: string(s), Label: i18n.T(ctx, "item.state."+string(s)), Selected: q.state == string(s)})
	}
	return views.Filter{
		Action: "/quarantine", Hidden: []views.Param{{Name: views.IntegrationParam, Value: integration}},
		Active: q.filtered() || q.state != string(gate.ItemOpen), Reset: link(integration, "/quarantine"),
		Fields: []views.FilterField{
			{Name: "state", Label: i18n.T(ctx, "item.state"), Options: states},
			{Name: "reason", Label: i18n.T(ctx, "item.reason"), Options: reasonOptions(ctx, heldReasons, gate.Reason(q.reason))},
			{Name: "q", Label: i18n.T(ctx, "quarantine.search"), Value: q.search, Hint: i18n.T(ctx, "quarantine.search_hint"), Search: true},
		},
	}
}

func itemRow(ctx context.Context, i gate.Item) views.ItemRow {
	r := views.ItemRow{
		RowID: itemName(i.ID), Name: itemName(i.ID), Href: link(i.Integration, itemPath(i.ID)),
		Value: strconv.FormatInt(i.ID, 10) + ":" + strconv.FormatInt(i.Version, 10), Open: i.State == gate.ItemOpen,
		Mark: itemMark(ctx, i.State), Reason: reasonText(ctx, i.Reason), What: itemWhat(ctx, i), Subject: i.Subject, OpenedAt: i.OpenedAt,
	}
	if i.DecidedBy != "" {
		r.Decided = i18n.T(ctx, "item.by", "By", i.DecidedBy)
	}
	return r
}

func (d desk) quarantineCSV(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	q, err := readItemQuery(c.QueryParam)
	if err != nil {
		return err
	}
	f := q.filter(integration)
	f.Before, f.Limit = 0, 500
	items, err := d.gate.Items(ctx, f)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "quarantine-"+integration, c.T("item.item"), c.T("item.state"), c.T("item.reason"), c.T("item.what"),
		c.T("desk.subject"), c.T("event.account"), c.T("event.id"), c.T("item.opened"), c.T("item.decided_at"), c.T("item.decided_who"), c.T("item.note"))
	if err != nil {
		return err
	}
	for len(items) > 0 {
		for _, i := range items {
			ref := itemEvent(i)
			if err := s.row(itemName(i.ID), itemMark(ctx, i.State).Text, reasonText(ctx, i.Reason), itemWhat(ctx, i), i.Subject,
				ref.Account, ref.ID, s.time(i.OpenedAt), s.time(i.DecidedAt), i.DecidedBy, i.Note); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil || len(items) < f.Limit {
			return err
		}
		f.Before = last(items)
		if items, err = d.gate.Items(ctx, f); err != nil {
			return err
		}
	}
	return s.flush()
}

func itemEvent(i gate.Item) gate.EventRef {
	switch {
	case i.Mutation != nil:
		return i.Mutation.Event
	case i.Delivery != nil:
		return i.Delivery.Event
	}
	return gate.EventRef{}
}

// quarantineStream renews, by id, the states of the rows that are shown, the
// line of what was decided last and the status of the item that is open, and
// counts what came since. Nothing moves.
func (d desk) quarantineStream(c *web.Context) error {
	integration := c.Integration()
	q, err := readItemQuery(c.QueryParam)
	if err != nil {
		return err
	}
	ids := make(map[string]int64, 3)
	for _, name := range []string{"cutoff", "watch", "item"} {
		if ids[name], err = number(c.QueryParam(name)); err != nil {
			return err
		}
	}
	shown, err := readIDList(c.QueryParam("ids"))
	if err != nil {
		return err
	}
	self := c.Request().URL.RequestURI()
	return c.SSE(topics(integration, "items"), func(ctx context.Context, send web.Send) error {
		l := views.QuarantineUpdate{Page: views.Page{Now: c.Now, Lang: i18n.Lang(ctx), LiveURL: self},
			ShowNew: q.link(integration, "/quarantine"), CountsNew: c.QueryParam("cutoff") != ""}
		var err error
		if l.Rows, err = d.rowsNow(ctx, integration, shown); err != nil {
			return err
		}
		if l.CountsNew {
			if l.New, err = d.since(ctx, q.filter(integration), ids["cutoff"]); err != nil {
				return err
			}
		}
		if l.Decided, err = d.decidedLine(ctx, c, ids["watch"]); err != nil {
			return err
		}
		if ids["item"] > 0 {
			item, err := d.gate.Item(ctx, ids["item"])
			if err != nil {
				return err
			}
			status := itemStatus(ctx, c, item)
			l.Status = &status
		}
		return send("", views.QuarantineLive(l))
	})
}

// idList is the ids of the rows that are shown, as the stream's URL holds them.
func idList(items []gate.Item) string {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = strconv.FormatInt(item.ID, 10)
	}
	return strings.Join(ids, ",")
}

func readIDList(text string) ([]int64, error) {
	var ids []int64
	for part := range strings.SplitSeq(text, ",") {
		id, err := number(part)
		if err != nil {
			return nil, err
		}
		if id > 0 && len(ids) < listSize {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// rowsNow reads the rows that are shown, newest first, as they are now. One
// that is so far down that a page of all states does not reach it stays.
func (d desk) rowsNow(ctx context.Context, integration string, shown []int64) ([]views.ItemRow, error) {
	if len(shown) == 0 {
		return nil, nil
	}
	items, err := d.gate.Items(ctx, gate.ItemFilter{Integration: integration, UpTo: slices.Max(shown), Limit: 500})
	if err != nil {
		return nil, err
	}
	var rows []views.ItemRow
	for _, i := range items {
		if slices.Contains(shown, i.ID) {
			rows = append(rows, itemRow(ctx, i))
		}
	}
	return rows, nil
}

// since counts what the filter selects above the cutoff.
func (d desk) since(ctx context.Context, f gate.ItemFilter, cutoff int64) (int64, error) {
	f.Before, f.Limit = 0, 0
	all, err := d.gate.CountItems(ctx, f)
	if err != nil || cutoff == 0 {
		return all, err
	}
	f.UpTo = cutoff
	old, err := d.gate.CountItems(ctx, f)
	return all - old, err
}

// decidedLine is the line about an item that was decided just before; nil for
// none or for one that does not exist.
func (d desk) decidedLine(ctx context.Context, c *web.Context, id int64) (*views.Decided, error) {
	if id == 0 {
		return nil, nil
	}
	i, err := d.gate.Item(ctx, id)
	if errors.Is(err, gate.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text := decidedBy(ctx, i)
	if i.State == gate.ItemReleasing {
		text = ""
	}
	return &views.Decided{
		ID: i.ID, Name: itemName(i.ID), Href: link(i.Integration, itemPath(i.ID)), Mark: itemMark(ctx, i.State),
		Text: strings.TrimSpace(itemName(i.ID) + " " + text), Releasing: i.State == gate.ItemReleasing, ReleaseAt: i.ReleaseAt,
		UndoAction: link(i.Integration, itemPath(i.ID)+"/undo"), Version: i.Version, CanUndo: disabledFor(c) == "" && c.Now.Before(i.ReleaseAt),
	}, nil
}

// bulkForm is the form below the list.
func bulkForm(c *web.Context, q itemQuery, items []gate.Item, typed views.BulkForm, cutoff int64, pager views.Pager) views.BulkForm {
	integration := c.Integration()
	typed.Action = link(integration, "/quarantine/bulk")
	typed.Hidden = []views.Param{{Name: "state", Value: q.state}, {Name: "reason", Value: q.reason}, {Name: "q", Value: q.search}}
	typed.Cutoff = cutoff
	typed.Matching = pager.Total
	typed.ShowAll = q.state == string(gate.ItemOpen) && pager.Total > int64(len(items))
	typed.Disabled = disabledFor(c)
	typed.Available = slices.ContainsFunc(items, func(i gate.Item) bool { return i.State == gate.ItemOpen })
	return typed
}
