package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// HistoryReader reads entities and the mutations that made them.
type HistoryReader interface {
	SearchEntities(ctx context.Context, integration, query string, limit int) ([]gate.Projected, error)
	Projected(ctx context.Context, integration, typ, id string) (gate.Projected, error)
	EntityMutations(ctx context.Context, integration, typ, id string, afterSeq int64, limit int) ([]gate.MutationRecord, error)
	Mutation(ctx context.Context, id int64) (gate.MutationRecord, error)
}

const entityMutations = 500

func (d desk) history(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	query := strings.TrimSpace(c.QueryParam("q"))
	found, err := d.gate.SearchEntities(ctx, integration, query, listSize)
	if err != nil {
		return err
	}
	p := views.HistoryPage{
		Page:  c.Page("history.title", "history"),
		Empty: listEmpty(ctx, query != "", "history.none", "history.none_filtered", link(integration, "/history")),
		Filter: views.Filter{
			Action: "/history", Hidden: []views.Param{{Name: views.IntegrationParam, Value: integration}},
			Active: query != "", Reset: link(integration, "/history"),
			Fields: []views.FilterField{{Name: "q", Label: c.T("history.search"), Value: query, Hint: c.T("history.search_hint"), Search: true}},
		},
	}
	p.Pager = views.Pager{Shown: len(found)}
	if query != "" {
		p.Pager.CSV = link(integration, "/history.csv", "q", query)
	}
	for _, e := range found {
		p.Rows = append(p.Rows, views.EntityRow{
			RowID: "entity-" + e.Type + "-" + e.ID, Name: e.Type + " " + e.ID, Href: link(integration, entityPath(e.Type, e.ID)),
			Subject: e.Subject, Version: i18n.Number(ctx, e.Version), Deleted: e.Deleted, UpdatedAt: e.UpdatedAt,
		})
	}
	return c.Render(http.StatusOK, views.History(p))
}

func (d desk) historyCSV(c *web.Context) error {
	integration := c.Integration()
	found, err := d.gate.SearchEntities(c.Ctx(), integration, strings.TrimSpace(c.QueryParam("q")), 500)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "history-"+integration, c.T("history.entity"), c.T("history.id"), c.T("history.subject"), c.T("history.version"),
		c.T("history.deleted"), c.T("history.updated"))
	if err != nil {
		return err
	}
	for _, e := range found {
		if err := s.row(e.Type, e.ID, e.Subject, strconv.FormatInt(e.Version, 10), strconv.FormatBool(e.Deleted), s.time(e.UpdatedAt)); err != nil {
			return err
		}
	}
	return s.flush()
}

func (d desk) entity(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	typ, err := param(c, "type")
	if err != nil {
		return err
	}
	id, err := param(c, "id")
	if err != nil {
		return err
	}
	now, err := d.gate.Projected(ctx, integration, typ, id)
	known := err == nil
	if err != nil && !errors.Is(err, gate.ErrNotFound) {
		return err
	}
	mutations, err := d.gate.EntityMutations(ctx, integration, typ, id, 0, entityMutations)
	if err != nil && !errors.Is(err, gate.ErrNotFound) {
		return err
	}
	if !known && len(mutations) == 0 {
		return web.NotFound(fmt.Errorf("entity %s %s: %w", typ, id, gate.ErrNotFound))
	}
	p := views.EntityPage{
		Page: c.Page("entity.title", "history", "Name", typ+" "+id), Name: typ + " " + id, Known: known, Deleted: now.Deleted,
		Crumbs: []views.Crumb{{Text: c.T("nav.history"), Href: link(integration, "/history")}},
		Now:    fields(ctx, c.T("history.now"), now.State), Steps: steps(ctx, mutations),
	}
	if known {
		p.Facts = []views.Fact{
			{Name: c.T("history.version"), Text: i18n.Number(ctx, now.Version)},
			{Name: c.T("history.target_version"), Text: i18n.Number(ctx, now.TargetVersion)},
			{Name: c.T("history.updated"), Text: i18n.Time(ctx, now.UpdatedAt), Mono: true},
		}
		if now.Subject != "" {
			p.Facts = append(p.Facts, views.Fact{Name: c.T("history.subject"), Text: now.Subject, Href: link(integration, "/history", "q", now.Subject)})
		}
	}
	if len(mutations) == entityMutations {
		p.More = c.T("history.more", "Count", entityMutations)
	}
	return c.Render(http.StatusOK, views.Entity(p))
}

// steps replays the applied mutations in their order and shows each with its
// state before and after, the newest first.
func steps(ctx context.Context, mutations []gate.MutationRecord) []views.StepView {
	var state json.RawMessage
	known := false // the state before the mutation is on record
	list := make([]views.StepView, 0, len(mutations))
	for _, m := range mutations {
		s := stepView(ctx, m)
		if s.Applied {
			after := result(state, m.Mutation)
			s.Diff = views.NewDiff(i18n.T(ctx, "history.step", "Name", s.Name), []string{i18n.T(ctx, "history.before"), i18n.T(ctx, "history.after")}, state, after)
			if !known && m.Mutation.Op != gate.OpCreate {
				s.Note = i18n.T(ctx, "history.before_unknown")
			}
			state, known = after, known || m.Mutation.Op == gate.OpCreate
		}
		list = append(list, s)
	}
	slices.Reverse(list)
	return list
}

func stepView(ctx context.Context, m gate.MutationRecord) views.StepView {
	s := views.StepView{
		Name: mutationName(m.ID), Href: link(m.Integration, mutationPath(m.ID)), ReceivedAt: m.ReceivedAt,
		Text: i18n.T(ctx, "history.by", "Operation", operation(ctx, m.Mutation), "Agent", m.Agent), Mark: stateMark(ctx, m),
		State: decisionText(ctx, m),
		// A rolled back mutation was applied: a later step undoes it.
		Applied: m.State == gate.Committed || m.State == gate.RolledBack,
	}
	if m.Event.ID != "" && m.RollbackID == 0 {
		s.Event, s.EventHref = i18n.T(ctx, "history.event", "Event", m.Event.ID), link(m.Integration, eventPath(m.Event.Account, m.Event.ID))
	}
	if m.RollbackID != 0 {
		s.Rollback, s.RollHref = rollbackName(m.RollbackID), link(m.Integration, rollbackPath(m.RollbackID))
	}
	return s
}

func (d desk) mutation(c *web.Context) error {
	id, err := idParam(c)
	if err != nil {
		return err
	}
	return d.mutationPage(c, http.StatusOK, id, "", "")
}

// mutationPage shows one mutation; note and conflict are what a person wrote
// when somebody had settled it before.
func (d desk) mutationPage(c *web.Context, status int, id int64, note, conflict string) error {
	ctx := c.Ctx()
	m, err := d.gate.Mutation(ctx, id)
	if err != nil {
		return err
	}
	timeline, err := d.timeline(ctx, m.Integration, mutationName(id))
	if err != nil {
		return err
	}
	p := views.MutationPage{
		Page: c.Page("mutation.title", "history", "Name", mutationName(id)), Name: mutationName(id), Heading: what(ctx, m.Mutation),
		Crumbs: []views.Crumb{{Text: c.T("nav.history"), Href: link(m.Integration, "/history")}},
		Mark:   stateMark(ctx, m), State: decisionText(ctx, m), Facts: mutationFacts(ctx, m), Body: fields(ctx, c.T("mutation.body"), m.Mutation.Body),
		Evidence: m.Evidence, Timeline: timeline, Note: note, Conflict: conflict,
	}
	p.Page.Integration = m.Integration
	if id := m.EntityID(); id != "" {
		p.Crumbs = append(p.Crumbs, views.Crumb{Text: m.Mutation.Type + " " + id, Href: link(m.Integration, entityPath(m.Mutation.Type, id))})
	}
	return c.Render(status, views.Mutation(p))
}

func mutationFacts(ctx context.Context, m gate.MutationRecord) []views.Fact {
	var facts []views.Fact
	add := func(name, text, href string, mono bool) {
		if text != "" {
			facts = append(facts, views.Fact{Name: i18n.T(ctx, name), Text: text, Href: href, Mono: mono})
		}
	}
	add("mutation.decision", strings.TrimSpace(decisionMark(ctx, m).Text+" "+decisionText(ctx, m)), "", false)
	add("desk.mode", modeName(ctx, m.Mode), "", false)
	if m.RollbackID != 0 {
		add("mutation.rollback", rollbackName(m.RollbackID), link(m.Integration, rollbackPath(m.RollbackID)), false)
	} else if m.Event.ID != "" {
		add("event.event", strings.TrimSpace(m.Event.Account+" "+m.Event.ID), link(m.Integration, eventPath(m.Event.Account, m.Event.ID)), true)
	}
	add("event.occurred", m.Event.OccurredAt, "", true)
	add("event.received", i18n.Time(ctx, m.ReceivedAt), "", true)
	add("mutation.effect", m.Effect, "", true)
	add("mutation.agent", m.Agent, "", false)
	add("mutation.run", m.Run, "", true)
	if m.Basis != nil {
		add("mutation.basis", i18n.T(ctx, "mutation.basis_text", "Type", m.Basis.Type, "ID", m.Basis.ID, "Version", m.Basis.Version),
			link(m.Integration, entityPath(m.Basis.Type, m.Basis.ID)), false)
	}
	add("mutation.fingerprint", fullHash(m.Fingerprint), "", true)
	if m.NaturalKey != (gate.Key{}) {
		add("mutation.natural_key", m.NaturalKey.String(), "", true)
	}
	if m.State == "" {
		return facts
	}
	add("mutation.key", m.Key.String(), "", true)
	add("inflight.attempt", i18n.Number(ctx, m.Attempt), "", false)
	add("inflight.reserved", i18n.Time(ctx, m.ReservedAt), "", true)
	add("mutation.settled", i18n.Time(ctx, m.SettledAt), "", true)
	add("mutation.settled_by", m.SettledBy, "", false)
	add("mutation.ref", m.ExternalRef, "", true)
	add("mutation.detail", m.Detail, "", false)
	return facts
}
