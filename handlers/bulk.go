package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// bulkLimit is the most items that one request decides; a second one goes on.
const bulkLimit = 2000

// seenItem is an item at the version that the person saw.
type seenItem struct{ id, version int64 }

// bulk decides many items with one note: those that were ticked, or all that
// match the filter up to the cutoff of the page. Each is decided by itself; the
// answer says item by item what became of it.
func (d desk) bulk(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	q, err := readItemQuery(form.Get)
	if err != nil {
		return err
	}
	q.before = 0
	note := strings.TrimSpace(form.Get("note"))
	act, tone := d.gate.Release, "bulk.title_release"
	switch form.Get("action") {
	case "release":
	case "reject":
		act, tone = d.gate.Reject, "bulk.title_reject"
	default:
		return &web.Error{Status: http.StatusBadRequest, MessageID: "error.bad_request", Err: fmt.Errorf("bulk action %q", form.Get("action"))}
	}
	cutoff, err := number(form.Get("cutoff"))
	if err != nil {
		return err
	}
	chosen, err := d.chosen(c.Ctx(), c.Integration(), form, q, cutoff)
	if err != nil {
		return err
	}
	if note == "" || len(chosen) == 0 {
		failure := "item.note_required"
		if note != "" {
			failure = "bulk.none_chosen"
		}
		return d.quarantinePage(c, http.StatusUnprocessableEntity, q, 0, views.BulkForm{Note: note, Error: c.T(failure)})
	}
	p := views.BulkPage{Page: c.Page(tone, "quarantine"), Back: q.link(c.Integration(), "/quarantine"),
		Crumbs: []views.Crumb{{Text: c.T("quarantine.title"), Href: q.link(c.Integration(), "/quarantine")}}}
	skipped := 0
	for _, s := range chosen {
		item, err := act(c.Ctx(), person(c), s.id, s.version, note)
		if err != nil {
			skipped++
		}
		p.Results = append(p.Results, d.bulkResult(c, s.id, item, err))
	}
	p.Done = i18n.N(c.Ctx(), "bulk.done", len(chosen)-skipped)
	if skipped > 0 {
		p.Skipped = i18n.N(c.Ctx(), "bulk.skipped", skipped)
	}
	if form.Get("all") != "" {
		later, err := d.since(c.Ctx(), q.filter(c.Integration()), cutoff)
		if err != nil {
			return err
		}
		if later > 0 {
			p.Later = i18n.N(c.Ctx(), "bulk.later", int(later))
		}
	}
	return c.Render(http.StatusOK, views.BulkResults(p))
}

// chosen are the ticked items, or all open ones that match up to the cutoff.
func (d desk) chosen(ctx context.Context, integration string, form url.Values, q itemQuery, cutoff int64) ([]seenItem, error) {
	var list []seenItem
	if form.Get("all") == "" {
		for _, value := range form["item"] {
			id, version, _ := strings.Cut(value, ":")
			n, err := number(id)
			if err != nil {
				return nil, err
			}
			v, err := number(version)
			if err != nil {
				return nil, err
			}
			list = append(list, seenItem{n, v})
		}
		return list, nil
	}
	f := q.filter(integration)
	f.States, f.UpTo, f.Limit = []gate.ItemState{gate.ItemOpen}, cutoff, 500
	for len(list) < bulkLimit {
		items, err := d.gate.Items(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, i := range items {
			list = append(list, seenItem{i.ID, i.Version})
		}
		if len(items) < f.Limit {
			break
		}
		f.Before = last(items)
	}
	return list, nil
}

// bulkResult is what became of one item; the reason of a skipped one is in
// words, and a cause that is ours is logged.
func (d desk) bulkResult(c *web.Context, id int64, item gate.Item, err error) views.BulkResult {
	ctx := c.Ctx()
	r := views.BulkResult{Name: itemName(id), Href: link(c.Integration(), itemPath(id))}
	var decided *gate.DecidedError
	switch {
	case err == nil:
		r.Mark, r.Text = itemMark(ctx, item.State), itemWhat(ctx, item)
		return r
	case errors.As(err, &decided), errors.Is(err, gate.ErrStale):
		r.Text = lostRace(ctx, decided)
	case errors.Is(err, gate.ErrNotFound):
		r.Text = i18n.T(ctx, "error.not_found")
	case errors.Is(err, gate.ErrMalformed):
		r.Text = i18n.T(ctx, "item.refused")
	default:
		d.failed(ctx, c, "Q-"+strconv.FormatInt(id, 10), err)
		r.Text = i18n.T(ctx, "desk.unreadable") + " " + i18n.T(ctx, "list.error_id", "ID", c.RequestID)
	}
	r.Mark = views.Mark{Tone: "warn", Text: i18n.T(ctx, "bulk.skipped_one")}
	return r
}
