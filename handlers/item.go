package handlers

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// typed is what a person had written when a decision did not go through.
type typed struct {
	note     string
	failure  string // beside the note
	conflict string // above the page: a lost race
}

func (d desk) item(c *web.Context) error {
	id, err := idParam(c)
	if err != nil {
		return err
	}
	return d.itemPage(c, http.StatusOK, id, typed{})
}

func (d desk) itemPage(c *web.Context, status int, id int64, t typed) error {
	ctx := c.Ctx()
	i, err := d.gate.Item(ctx, id)
	if err != nil {
		return err
	}
	next, position, total, err := d.gate.NextItem(ctx, i.Integration, id)
	if err != nil {
		return err
	}
	after, err := number(c.QueryParam("after"))
	if err != nil {
		return err
	}
	decided, err := d.decidedLine(ctx, c, after)
	if err != nil {
		return err
	}
	timeline, err := d.timeline(ctx, i.Integration, itemName(id))
	if err != nil {
		return err
	}
	p := views.ItemPage{
		Page: c.Page("item.title", "quarantine", "Name", itemName(id)), Name: itemName(id), Heading: itemWhat(ctx, i),
		Crumbs: []views.Crumb{{Text: c.T("quarantine.title"), Href: link(i.Integration, "/quarantine")}},
		Mark:   itemMark(ctx, i.State), OpenedAt: i.OpenedAt, Reason: reasonText(ctx, i.Reason), Todo: reasonTodo(ctx, i.Reason),
		Detail: i.Detail, Facts: itemFacts(ctx, i), Twin: twinView(ctx, i), Timeline: timeline, Decided: decided,
		Status: itemStatus(ctx, c, i), Conflict: t.conflict,
		Decision: views.DecisionForm{
			Show: i.State == gate.ItemOpen, Version: i.Version, Fingerprint: hex.EncodeToString(i.Fingerprint[:]), Note: t.note,
			Release: link(i.Integration, itemPath(id)+"/release"), Reject: link(i.Integration, itemPath(id)+"/reject"),
			Error: t.failure, Disabled: disabledFor(c),
		},
	}
	p.Page.Integration = i.Integration
	if i.State == gate.ItemOpen && position > 0 {
		p.Position = c.T("item.position", "Position", position, "Total", total)
	}
	if next != 0 {
		p.NextHref = link(i.Integration, itemPath(next))
	}
	if i.Delivery != nil {
		p.Payload = payloadText(i.Delivery.Payload)
	} else if p.Payload, err = d.eventPayload(ctx, i); err != nil {
		return err
	}
	p.Diff, p.DiffNote = itemDiff(ctx, i)
	p.Page.LiveURL = link(i.Integration, "/stream/quarantine", "item", itoa(id), "watch", itoa(after))
	return c.Render(status, views.Item(p))
}

// eventPayload is the payload of the event that the mutation answers, "" when
// it never came through the inbox.
func (d desk) eventPayload(ctx context.Context, i gate.Item) (string, error) {
	if i.Mutation == nil || i.Mutation.Event.ID == "" {
		return "", nil
	}
	list, err := d.gate.Deliveries(ctx, i.Integration, i.Mutation.Event)
	if errors.Is(err, gate.ErrNotFound) {
		return "", nil
	}
	if err != nil || len(list) == 0 {
		return "", err
	}
	return payloadText(list[0].Payload), nil
}

// itemFacts is the evidence, line by line.
func itemFacts(ctx context.Context, i gate.Item) []views.Fact {
	var facts []views.Fact
	add := func(name, text, href string, mono bool) {
		if text != "" {
			facts = append(facts, views.Fact{Name: i18n.T(ctx, name), Text: text, Href: href, Mono: mono})
		}
	}
	ref := itemEvent(i)
	if ref.ID != "" {
		add("event.event", strings.TrimSpace(ref.Account+" "+ref.ID), link(i.Integration, eventPath(ref.Account, ref.ID)), true)
	}
	add("event.occurred", ref.OccurredAt, "", true)
	add("desk.subject", i.Subject, "", false)
	if m := i.Mutation; m != nil {
		add("mutation.mutation", mutationName(m.ID), link(i.Integration, mutationPath(m.ID)), false)
		add("event.received", i18n.Time(ctx, m.ReceivedAt), "", true)
		add("mutation.agent", m.Agent, "", false)
		add("mutation.run", m.Run, "", true)
		add("mutation.effect", m.Effect, "", true)
		if id := m.EntityID(); id != "" {
			add("history.entity", m.Mutation.Type+" "+id, link(i.Integration, entityPath(m.Mutation.Type, id)), false)
		}
	}
	if del := i.Delivery; del != nil {
		add("event.received", i18n.Time(ctx, del.ReceivedAt), "", true)
		add("event.kind", del.Kind, "", false)
	}
	if i.RollbackID != 0 {
		add("item.blocked_by", rollbackName(i.RollbackID), link(i.Integration, rollbackPath(i.RollbackID)), false)
	}
	if i.Mutation != nil && i.Moved() {
		add("item.moved", i18n.T(ctx, "item.moved_text", "At", i18n.Time(ctx, i.Current.UpdatedAt)), "", false)
	}
	return facts
}

func twinView(ctx context.Context, i gate.Item) *views.TwinView {
	if i.Twin == nil {
		return nil
	}
	return &views.TwinView{
		Name: mutationName(i.Twin.ID), Href: link(i.Integration, mutationPath(i.Twin.ID)), At: i.Twin.ReceivedAt,
		Text: i18n.T(ctx, "item.twin_text", "Operation", operation(ctx, i.Twin.Mutation), "Event", i.Twin.Event.ID, "Agent", i.Twin.Agent),
		// The twin's mark is a word here: the line is read as a sentence.
		State: stateMark(ctx, *i.Twin).Text,
	}
}

// itemDiff compares the record as it is with what the mutation would make of
// it, and with what its twin asked for.
func itemDiff(ctx context.Context, i gate.Item) (views.Diff, string) {
	if i.Mutation == nil {
		return views.Diff{}, ""
	}
	var now json.RawMessage
	if i.Current != nil && !i.Current.Deleted {
		now = i.Current.State
	}
	note := ""
	if now == nil && i.Mutation.Mutation.Op != gate.OpCreate {
		note = i18n.T(ctx, "item.no_record")
	}
	columns := []string{i18n.T(ctx, "item.col_now"), i18n.T(ctx, "item.col_this")}
	documents := []json.RawMessage{now, result(now, i.Mutation.Mutation)}
	if i.Twin != nil {
		columns = append(columns, i18n.T(ctx, "item.col_twin", "Name", mutationName(i.Twin.ID)))
		documents = append(documents, result(now, i.Twin.Mutation))
	}
	return views.NewDiff(i18n.T(ctx, "item.diff"), columns, documents...), note
}

// result is the state after the mutation; nil is an entity that does not exist.
// A body that cannot be merged is shown as it is.
func result(state json.RawMessage, m gate.Mutation) json.RawMessage {
	switch m.Op {
	case gate.OpDelete:
		return nil
	case gate.OpCreate:
		return m.Body
	}
	merged, err := gate.Merge(state, m.Body)
	if err != nil {
		return m.Body
	}
	return merged
}

// itemStatus says where the item stands and what can still be done.
func itemStatus(ctx context.Context, c *web.Context, i gate.Item) views.ItemStatus {
	s := views.ItemStatus{
		ID: i.ID, Mark: itemMark(ctx, i.State), Text: decidedBy(ctx, i), Note: i.Note,
		Releasing: i.State == gate.ItemReleasing, ReleaseAt: i.ReleaseAt, Version: i.Version,
		UndoAction: link(i.Integration, itemPath(i.ID)+"/undo"), CanUndo: disabledFor(c) == "" && c.Now.Before(i.ReleaseAt),
	}
	if i.State == gate.ItemOpen {
		s.Text = i18n.T(ctx, "item.waits", "At", i18n.Time(ctx, i.OpenedAt))
	}
	if i.State == gate.ItemSuperseded && i.Outcome != "" {
		s.Text = strings.TrimSpace(s.Text + " " + i.Outcome)
	}
	if i.State != gate.ItemReleased {
		return s
	}
	if i.ReleasedAs != 0 {
		s.SentHref, s.SentName = link(i.Integration, mutationPath(i.ReleasedAs)), i18n.T(ctx, "item.sent_as", "Name", mutationName(i.ReleasedAs))
	}
	if i.Outcome != "" {
		s.Text += " · " + i.Outcome
	}
	s.Final, s.PlanHref = i18n.T(ctx, "item.final"), link(i.Integration, "/rollbacks/new")
	return s
}

// timeline is what the audit record says about an object, oldest first.
func (d desk) timeline(ctx context.Context, integration, object string) ([]views.TimelineEntry, error) {
	records, err := d.audit.List(ctx, audit.Filter{Integration: integration, Object: object, Limit: 100})
	if err != nil {
		return nil, err
	}
	entries := make([]views.TimelineEntry, 0, len(records))
	for i := len(records) - 1; i >= 0; i-- {
		r := records[i]
		entries = append(entries, views.TimelineEntry{
			At: r.At, Actor: r.Actor, Text: actionText(ctx, r.Action), Note: detailNote(r.Detail),
			Href: link(integration, "/audit/"+strconv.FormatInt(r.ID, 10)), Link: i18n.T(ctx, "audit.record"),
		})
	}
	return entries, nil
}

func (d desk) release(c *web.Context) error {
	return d.decideItem(c, d.gate.Release, gate.ItemReleasing, gate.ItemReleased)
}

func (d desk) reject(c *web.Context) error {
	return d.decideItem(c, d.gate.Reject, gate.ItemRejected)
}

// decideItem carries out a decision and opens the next item. done are the
// states in which the item is as this decision would have left it: the same
// person's second click is then no lost race.
func (d desk) decideItem(c *web.Context, act func(ctx context.Context, by gate.Actor, id, version int64, note string) (gate.Item, error),
	done ...gate.ItemState) error {
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
	note := strings.TrimSpace(form.Get("note"))
	if note == "" {
		return d.itemPage(c, http.StatusUnprocessableEntity, id, typed{failure: c.T("item.note_required")})
	}
	item, err := act(c.Ctx(), person(c), id, version, note)
	var decided *gate.DecidedError
	switch {
	case errors.As(err, &decided) && decided.By == c.User.Name && containsState(done, decided.State):
		if item, err = d.gate.Item(c.Ctx(), id); err != nil {
			return err
		}
	case errors.Is(err, gate.ErrStale):
		return d.itemPage(c, http.StatusConflict, id, typed{note: note, conflict: lostRace(c.Ctx(), decided)})
	case errors.Is(err, gate.ErrMalformed):
		return d.itemPage(c, http.StatusUnprocessableEntity, id, typed{note: note, failure: c.T("item.refused")})
	case err != nil:
		return err
	}
	return d.openNext(c, item)
}

func containsState(states []gate.ItemState, state string) bool {
	for _, s := range states {
		if string(s) == state {
			return true
		}
	}
	return false
}

// openNext goes on to the next open item, which shows what became of this one.
func (d desk) openNext(c *web.Context, item gate.Item) error {
	next, _, _, err := d.gate.NextItem(c.Ctx(), item.Integration, item.ID)
	if err != nil {
		return err
	}
	if next == 0 {
		return c.Redirect(link(item.Integration, "/quarantine", "after", itoa(item.ID)))
	}
	return c.Redirect(link(item.Integration, itemPath(next), "after", itoa(item.ID)))
}

// undo takes a release back while it waits and returns to the item.
func (d desk) undo(c *web.Context) error {
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
	item, err := d.gate.UndoRelease(c.Ctx(), person(c), id, version)
	var decided *gate.DecidedError
	if errors.Is(err, gate.ErrStale) {
		errors.As(err, &decided)
		return d.itemPage(c, http.StatusConflict, id, typed{conflict: c.T("item.undo_late") + " " + lostRace(c.Ctx(), decided)})
	}
	if err != nil {
		return err
	}
	if err := c.Flash(views.Flash{Tone: views.ToneOK, ID: "item.undone_flash", Args: []string{"Name", itemName(id)}}); err != nil {
		return err
	}
	return c.Redirect(link(item.Integration, itemPath(id)))
}
