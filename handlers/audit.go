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

	"sluis/gate/audit"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// auditActions are the actions by which the list can be filtered: each that the
// gate, the snapshots and the platform record.
var auditActions = []string{
	"mutation.reserved", "mutation.committed", "mutation.refused", "mutation.unknown", "mutation.manual", "mutation.dropped",
	"mutation.held", "mutation.in_flight", "mutation.rolled_back", "delivery.stored", "delivery.duplicate", "delivery.held", "event.closed", "item.opened", "item.releasing", "item.undone", "item.released",
	"item.rejected", "item.superseded", "pair.found", "pair.judged", "pairs.requested", "pairs.scanned", "drops.acknowledged", "integration.created",
	"integration.mode", "integration.frozen", "baseline.adopted", "snapshot.taken", "snapshot.verified", "snapshot.verify_requested", "rollback.requested",
	"rollback.planned", "rollback.choice", "rollback.approved", "rollback.refused", "rollback.row", "rollback.applied",
	"rollback.stopped", "rollback.resumed", "rollback.cancelled", "rollback.expired", "rollback.failed", "user.created", "user.role", "user.disabled", "user.enabled",
	"user.password", "user.signed_in", "user.signed_out", "user.sign_in_failed", "access.refused", "token.created", "token.revoked",
}

// actionText is the action in words; one that has none is shown as recorded.
func actionText(ctx context.Context, action string) string {
	for _, known := range auditActions {
		if known == action {
			return i18n.T(ctx, "action."+action)
		}
	}
	return action
}

// errInstant is a time of the filter that cannot be read, or that two instants
// answer to.
var errInstant = errors.New("neither a day nor a time with its offset")

// auditFilter is the filter of the list as the URL holds it. It covers the
// chosen integration, and with all=1 everything: users and sign-ins too.
func auditFilter(c *web.Context) (audit.Filter, error) {
	f := audit.Filter{Integration: c.Integration(), Actor: strings.TrimSpace(c.QueryParam("actor")), Action: c.QueryParam("action"),
		Object: strings.TrimSpace(c.QueryParam("object")), Limit: listSize}
	if c.QueryParam("all") != "" {
		f.Integration = ""
	}
	var err error
	if f.Before, err = number(c.QueryParam("before")); err != nil {
		return f, err
	}
	zone := i18n.Zone(c.Ctx())
	from, fromErr := instant(c.QueryParam("from"), zone, 0)
	to, toErr := instant(c.QueryParam("to"), zone, 1)
	f.From, f.To = from, to
	return f, errors.Join(fromErr, toErr)
}

// instant reads a day, or a time with its offset: a wall-clock time alone is
// not taken, since the repeated hour has it twice. days moves a day on, so that
// "to" covers the day that it names.
func instant(text string, zone *time.Location, days int) (time.Time, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return time.Date(day.Year(), day.Month(), day.Day()+days, 0, 0, 0, 0, zone), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05 -07:00", "2006-01-02 15:04 -07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: %w", text, errInstant)
}

func (d desk) auditList(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	p := views.AuditPage{Page: c.Page("audit.title", "audit"), Filter: auditFilterBar(c), Chain: d.chainLine(c)}
	f, err := auditFilter(c)
	if errors.Is(err, errInstant) {
		p.Empty = views.Empty{Text: c.T("audit.bad_time"), Href: link(integration, "/audit"), LinkText: c.T("list.reset")}
		return c.Render(http.StatusUnprocessableEntity, views.Audit(p))
	}
	if err != nil {
		return err
	}
	records, err := d.audit.List(ctx, f)
	if err != nil {
		return err
	}
	for _, r := range records {
		p.Rows = append(p.Rows, auditRow(ctx, integration, r))
	}
	p.Empty = listEmpty(ctx, p.Filter.Active, "audit.none", "audit.none_filtered", link(integration, "/audit"))
	p.Pager = views.Pager{Shown: len(records), CSV: auditLink(c, "/audit.csv")}
	if f.Before > 0 {
		p.Pager.First = auditLink(c, "/audit")
	}
	if len(records) == f.Limit {
		p.Pager.Next = auditLink(c, "/audit", "before", itoa(records[len(records)-1].ID))
	}
	return c.Render(http.StatusOK, views.Audit(p))
}

// auditLink is path with the current filter.
func auditLink(c *web.Context, path string, kv ...string) string {
	for _, name := range []string{"actor", "action", "object", "from", "to", "all"} {
		kv = append(kv, name, c.QueryParam(name))
	}
	return link(c.Integration(), path, kv...)
}

func auditFilterBar(c *web.Context) views.Filter {
	ctx, action := c.Ctx(), c.QueryParam("action")
	actions := []views.Option{{Value: "", Label: c.T("list.all")}}
	for _, a := range auditActions {
		actions = append(actions, views.Option{Value: a, Label: actionText(ctx, a), Selected: a == action})
	}
	f := views.Filter{
		Action: "/audit", Hidden: []views.Param{{Name: views.IntegrationParam, Value: c.Integration()}}, Reset: link(c.Integration(), "/audit"),
		Fields: []views.FilterField{
			{Name: "actor", Label: c.T("audit.actor"), Value: c.QueryParam("actor"), Search: true},
			{Name: "action", Label: c.T("audit.action"), Value: action, Options: actions},
			{Name: "object", Label: c.T("audit.object"), Value: c.QueryParam("object"), Hint: c.T("audit.object_hint")},
			{Name: "from", Label: c.T("audit.from"), Value: c.QueryParam("from"), Hint: c.T("audit.time_hint")},
			{Name: "to", Label: c.T("audit.to"), Value: c.QueryParam("to"), Hint: c.T("audit.time_hint")},
			{Name: "all", Label: c.T("audit.scope"), Value: c.QueryParam("all"), Options: []views.Option{
				{Value: "", Label: c.T("audit.scope_one", "Name", c.Integration())},
				{Value: "1", Label: c.T("audit.scope_all"), Selected: c.QueryParam("all") != ""},
			}},
		},
	}
	for _, field := range f.Fields {
		f.Active = f.Active || field.Value != ""
	}
	return f
}

func auditRow(ctx context.Context, integration string, r audit.Record) views.AuditRow {
	row := views.AuditRow{
		RowID: "audit-" + strconv.FormatInt(r.ID, 10), Href: link(integration, "/audit/"+strconv.FormatInt(r.ID, 10)), At: r.At, Actor: r.Actor,
		Action: r.Action, Text: actionText(ctx, r.Action), Object: r.Object, Hash: shortHash(r.Hash), Note: detailNote(r.Detail),
	}
	if path := objectPath(r.Object); path != "" {
		row.ObjectHref = path
		if !strings.Contains(path, "?") {
			row.ObjectHref = link(r.Integration, path)
		}
	}
	if r.Pos > 0 {
		row.Pos = i18n.Number(ctx, r.Pos)
	}
	return row
}

// detailNote is the note that a person wrote, or the reason that was given.
func detailNote(detail json.RawMessage) string {
	var d struct {
		Note   string `json:"note"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(detail, &d) != nil {
		return ""
	}
	if d.Note != "" {
		return d.Note
	}
	return d.Reason
}

// chainLine says where the chain ends and, when asked, whether it holds from
// its start. Verifying reads and changes nothing.
func (d desk) chainLine(c *web.Context) views.ChainLine {
	ctx := c.Ctx()
	line := views.ChainLine{Action: "/audit", Hidden: []views.Param{{Name: views.IntegrationParam, Value: c.Integration()}}}
	head, err := d.audit.Head(ctx)
	if err != nil {
		d.failed(ctx, c, "audit head", err)
		line.Unknown = true
		return line
	}
	line.Head, line.Hash = i18n.Number(ctx, head.Pos), shortHash(head.Hash)
	if c.QueryParam("verify") == "" {
		return line
	}
	verified, err := d.audit.Verify(ctx)
	var broken *audit.BrokenError
	switch {
	case errors.As(err, &broken):
		line.Broken, line.Result = true, c.T("audit.broken", "Pos", broken.Pos)
		d.failed(ctx, c, "audit chain", err)
	case err != nil:
		line.Broken, line.Result = true, c.T("desk.unreadable")+" "+c.T("list.error_id", "ID", c.RequestID)
		d.failed(ctx, c, "audit chain", err)
	default:
		line.Result = c.T("audit.verified", "Pos", verified.Pos, "At", i18n.Time(ctx, c.Now))
	}
	return line
}

func (d desk) auditCSV(c *web.Context) error {
	f, err := auditFilter(c)
	if errors.Is(err, errInstant) {
		return &web.Error{Status: http.StatusUnprocessableEntity, MessageID: "audit.bad_time", Err: err}
	}
	if err != nil {
		return err
	}
	f.Before = 0
	var s *sheet
	open := func() error {
		if s != nil {
			return nil
		}
		var err error
		s, err = startCSV(c, "audit", c.T("audit.id"), c.T("audit.pos"), c.T("audit.hash"), c.T("audit.at"), c.T("audit.actor_kind"), c.T("audit.actor"),
			c.T("nav.integration"), c.T("audit.action"), c.T("audit.object"), c.T("audit.detail"))
		return err
	}
	n := 0
	err = d.audit.Each(c.Ctx(), f, func(r audit.Record) error {
		// The head goes out with the first record: what fails before it is still
		// an error page.
		if err := open(); err != nil {
			return err
		}
		if err := s.row(strconv.FormatInt(r.ID, 10), itoa(r.Pos), fullHash(r.Hash), s.time(r.At), r.ActorKind, r.Actor, r.Integration, r.Action,
			r.Object, string(r.Detail)); err != nil {
			return err
		}
		if n++; n%500 == 0 {
			return s.flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := open(); err != nil {
		return err
	}
	return s.flush()
}

func (d desk) auditRecord(c *web.Context) error {
	ctx := c.Ctx()
	id, err := idParam(c)
	if err != nil {
		return err
	}
	records, err := d.audit.List(ctx, audit.Filter{Before: id + 1, Limit: 1})
	if err != nil {
		return err
	}
	if len(records) == 0 || records[0].ID != id {
		return web.NotFound(fmt.Errorf("audit record %d", id))
	}
	r := records[0]
	row := auditRow(ctx, c.Integration(), r)
	p := views.AuditRecordPage{
		Page: c.Page("audit.record_title", "audit", "ID", strconv.FormatInt(id, 10)), Row: row, Hash: fullHash(r.Hash), Detail: payloadText(r.Detail),
		Crumbs: []views.Crumb{{Text: c.T("audit.title"), Href: link(c.Integration(), "/audit")}},
		Facts: []views.Fact{
			{Name: c.T("audit.at"), Text: i18n.Time(ctx, r.At), Mono: true},
			{Name: c.T("audit.actor"), Text: c.T("audit.kind."+r.ActorKind) + " " + r.Actor},
			{Name: c.T("audit.action"), Text: r.Action, Mono: true},
			{Name: c.T("audit.object"), Text: r.Object, Href: row.ObjectHref},
			{Name: c.T("nav.integration"), Text: r.Integration},
			{Name: c.T("audit.pos"), Text: row.Pos},
		},
	}
	return c.Render(http.StatusOK, views.AuditRecord(p))
}
