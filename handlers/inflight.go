package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// OutcomeDesk reads reservations without a recorded outcome and takes a
// person's word on one.
type OutcomeDesk interface {
	OpenReservations(ctx context.Context, integration string, limit int) ([]gate.MutationRecord, error)
	SettleByHand(ctx context.Context, by gate.Actor, mutationID, version int64, applied bool, ref, note string) error
}

// Ages at which something happens to a row (incident 2): it is looked up, and
// it is an alarm.
const (
	lookAfter  = 2 * time.Minute
	alertAfter = 10 * time.Minute
)

const openReservations = 500

// openStates are the states without an outcome, in the order of their tabs.
var openStates = []gate.State{gate.InFlight, gate.Unknown, gate.Manual}

func (d desk) inFlight(c *web.Context) error {
	return d.inFlightPage(c, http.StatusOK, 0, views.SettleForm{})
}

// inFlightPage renders the list; typed is what was written for the row of that
// mutation when settling it did not go through.
func (d desk) inFlightPage(c *web.Context, status int, mutation int64, typed views.SettleForm) error {
	ctx, integration := c.Ctx(), c.Integration()
	all, err := d.gate.OpenReservations(ctx, integration, openReservations)
	if err != nil {
		return err
	}
	state := gate.State(c.QueryParam("state"))
	search := strings.TrimSpace(c.QueryParam("q"))
	kept := filterOpen(all, state, search)
	p := views.InFlightPage{
		Page: c.Page("inflight.title", "inflight"), Tabs: openTabs(ctx, integration, all, state),
		Filter: views.Filter{
			Action: "/in-flight", Active: search != "" || state != "", Reset: link(integration, "/in-flight"),
			Hidden: []views.Param{{Name: views.IntegrationParam, Value: integration}, {Name: "state", Value: string(state)}},
			Fields: []views.FilterField{{Name: "q", Label: c.T("quarantine.search"), Value: search, Hint: c.T("inflight.search_hint"), Search: true}},
		},
		Empty: listEmpty(ctx, search != "" || state != "", "inflight.none", "inflight.none_filtered", link(integration, "/in-flight")),
		Pager: views.Pager{Shown: len(kept), Total: int64(len(all)), CSV: link(integration, "/in-flight.csv", "state", string(state), "q", search)},
	}
	for _, m := range kept {
		row := inFlightRow(c, m)
		if m.ID == mutation && row.Settle != nil {
			row.Settle.Applied, row.Settle.Ref, row.Settle.Note = typed.Applied, typed.Ref, typed.Note
			row.Settle.Error, row.Settle.Open = typed.Error, true
		}
		p.Rows = append(p.Rows, row)
	}
	return c.Render(status, views.InFlight(p))
}

func filterOpen(all []gate.MutationRecord, state gate.State, search string) []gate.MutationRecord {
	kept := make([]gate.MutationRecord, 0, len(all))
	for _, m := range all {
		hit := search == "" || search == m.Event.ID || search == m.Mutation.Subject || search == m.EntityID() ||
			strings.EqualFold(search, mutationName(m.ID)) || strings.EqualFold(search, m.Key.String())
		if hit && (state == "" || m.State == state) {
			kept = append(kept, m)
		}
	}
	return kept
}

func openTabs(ctx context.Context, integration string, all []gate.MutationRecord, chosen gate.State) []views.Tab {
	tabs := []views.Tab{{Text: i18n.T(ctx, "list.all"), Count: i18n.Number(ctx, len(all)), Href: link(integration, "/in-flight"), Current: chosen == ""}}
	for _, s := range openStates {
		tabs = append(tabs, views.Tab{Text: i18n.T(ctx, "res."+string(s)), Count: i18n.Number(ctx, len(filterOpen(all, s, ""))),
			Href: link(integration, "/in-flight", "state", string(s)), Current: chosen == s})
	}
	return tabs
}

func inFlightRow(c *web.Context, m gate.MutationRecord) views.InFlightRow {
	ctx := c.Ctx()
	r := views.InFlightRow{
		RowID: mutationName(m.ID), Name: mutationName(m.ID), Href: link(m.Integration, mutationPath(m.ID)), What: what(ctx, m.Mutation),
		Mark: openMark(ctx, m, c.Now), ReservedAt: m.ReservedAt, Attempt: i18n.Number(ctx, m.Attempt), Key: m.Key.String(),
		Detail: m.Detail, Next: i18n.T(ctx, nextStep(m, c.Now)),
	}
	if m.State == gate.Unknown || m.State == gate.Manual {
		id := strconv.FormatInt(m.ID, 10)
		r.Settle = &views.SettleForm{ID: id, Action: link(m.Integration, "/in-flight/"+id+"/settle"), Version: m.Version, Disabled: disabledFor(c)}
	}
	return r
}

// openMark is red for a row that only a person can settle and for one past the
// alert line.
func openMark(ctx context.Context, m gate.MutationRecord, now time.Time) views.Mark {
	mark := stateMark(ctx, m)
	if now.Sub(m.ReservedAt) >= alertAfter {
		mark.Tone = "crit"
	}
	return mark
}

// nextStep is the message that says what happens to the row next.
func nextStep(m gate.MutationRecord, now time.Time) string {
	age := now.Sub(m.ReservedAt)
	switch {
	case m.State == gate.Manual:
		return "inflight.next_manual"
	case m.State == gate.Unknown && age >= alertAfter:
		return "inflight.next_unknown_alert"
	case m.State == gate.Unknown:
		return "inflight.next_unknown"
	case age >= alertAfter:
		return "inflight.next_alert"
	case age >= lookAfter:
		return "inflight.next_look"
	}
	return "inflight.next_wait"
}

func (d desk) inFlightCSV(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	all, err := d.gate.OpenReservations(ctx, integration, openReservations)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "in-flight-"+integration, c.T("mutation.mutation"), c.T("item.state"), c.T("item.what"), c.T("event.account"),
		c.T("event.id"), c.T("inflight.reserved"), c.T("inflight.attempt"), c.T("inflight.key"), c.T("inflight.last_look"), c.T("inflight.next"))
	if err != nil {
		return err
	}
	for _, m := range filterOpen(all, gate.State(c.QueryParam("state")), strings.TrimSpace(c.QueryParam("q"))) {
		if err := s.row(mutationName(m.ID), stateMark(ctx, m).Text, what(ctx, m.Mutation), m.Event.Account, m.Event.ID, s.time(m.ReservedAt),
			strconv.Itoa(m.Attempt), m.Key.String(), m.Detail, i18n.T(ctx, nextStep(m, c.Now))); err != nil {
			return err
		}
	}
	return s.flush()
}

// settle takes a person's word on an outcome that could not be looked up. It is
// bound to the version that the person saw.
func (d desk) settle(c *web.Context) error {
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
	typed := views.SettleForm{Applied: form.Get("applied"), Ref: strings.TrimSpace(form.Get("ref")), Note: strings.TrimSpace(form.Get("note"))}
	switch {
	case typed.Applied != "yes" && typed.Applied != "no":
		typed.Error = c.T("settle.choose")
	case typed.Note == "":
		typed.Error = c.T("item.note_required")
	}
	if typed.Error != "" {
		return d.inFlightPage(c, http.StatusUnprocessableEntity, id, typed)
	}
	err = d.gate.SettleByHand(c.Ctx(), person(c), id, version, typed.Applied == "yes", typed.Ref, typed.Note)
	var decided *gate.DecidedError
	switch {
	case errors.As(err, &decided):
		// The row is no longer on the list: its own page shows what it became.
		return d.mutationPage(c, http.StatusConflict, id, typed.Note, lostRace(c.Ctx(), decided))
	case errors.Is(err, gate.ErrStale):
		typed.Error = c.T("desk.stale")
		return d.inFlightPage(c, http.StatusConflict, id, typed)
	case errors.Is(err, gate.ErrMalformed):
		typed.Error = c.T("settle.refused")
		return d.inFlightPage(c, http.StatusUnprocessableEntity, id, typed)
	case err != nil:
		return err
	}
	flash := views.Flash{Tone: views.ToneOK, ID: "settle.flash", Args: []string{"Name", mutationName(id)},
		Href: link(c.Integration(), mutationPath(id)), LinkText: "item.view"}
	if err := c.Flash(flash); err != nil {
		return err
	}
	return c.Redirect(link(c.Integration(), "/in-flight"))
}
