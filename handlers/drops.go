package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// EventReader reads drops, deliveries and the mutations of an event.
type EventReader interface {
	Drops(ctx context.Context, integration string, before int64, limit int) ([]gate.DropGroup, error)
	Deliveries(ctx context.Context, integration string, event gate.EventRef) ([]gate.DeliveryRecord, error)
	EventMutations(ctx context.Context, integration string, event gate.EventRef, limit int) ([]gate.MutationRecord, error)
}

// Sizes of a page.
const (
	listSize       = 50
	eventMutations = 500
)

// drops lists what was dropped. "Not acknowledged" is filtered here, because
// unacknowledged drops are the newest ones: they stand on the first pages.
func (d desk) drops(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	before, err := number(c.QueryParam("before"))
	if err != nil {
		return err
	}
	unseen, reason := c.QueryParam("seen") == "no", gate.Reason(c.QueryParam("reason"))
	groups, err := d.gate.Drops(ctx, integration, before, listSize)
	if err != nil {
		return err
	}
	kept := filterDrops(groups, unseen, reason)
	p := views.DropsPage{
		Page:   c.Page("drops.title", "dashboard"),
		Filter: dropFilter(ctx, integration, c.QueryParam("seen"), reason),
		Rows:   dropRows(ctx, integration, kept),
		Empty:  listEmpty(ctx, unseen || reason != "", "drops.none", "drops.none_filtered", link(integration, "/drops")),
		Pager:  views.Pager{Shown: len(kept), CSV: link(integration, "/drops.csv", "seen", c.QueryParam("seen"), "reason", string(reason))},
	}
	if before > 0 {
		p.Pager.First = link(integration, "/drops", "seen", c.QueryParam("seen"), "reason", string(reason))
	}
	if len(groups) == listSize {
		p.Pager.Next = link(integration, "/drops", "seen", c.QueryParam("seen"), "reason", string(reason),
			"before", itoa(groups[len(groups)-1].LastID))
	}
	for _, s := range d.signals(ctx, c, integration) {
		if s.ID == gate.SignalDrops {
			p.Ack = ackFormOf(ctx, c, integration, s)
		}
	}
	return c.Render(http.StatusOK, views.Drops(p))
}

func filterDrops(groups []gate.DropGroup, unseen bool, reason gate.Reason) []gate.DropGroup {
	kept := make([]gate.DropGroup, 0, len(groups))
	for _, g := range groups {
		if (!unseen || !g.Acknowledged) && (reason == "" || g.Reason == reason) {
			kept = append(kept, g)
		}
	}
	return kept
}

func (d desk) dropsCSV(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	const page = 500
	groups, err := d.gate.Drops(ctx, integration, 0, page)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "drops-"+integration, c.T("event.account"), c.T("drops.event"), c.T("drops.reason"), c.T("desk.mode"), c.T("event.deliveries_head"),
		c.T("mutation.table"), c.T("drops.first_seen"), c.T("drops.dropped_at"), c.T("drops.acknowledged"))
	if err != nil {
		return err
	}
	for len(groups) > 0 {
		for _, g := range filterDrops(groups, c.QueryParam("seen") == "no", gate.Reason(c.QueryParam("reason"))) {
			seen := "drops.unseen"
			if g.Acknowledged {
				seen = "drops.seen"
			}
			if err := s.row(g.Account, g.EventID, reasonText(ctx, g.Reason), modeName(ctx, g.Mode), strconv.Itoa(g.Deliveries), strconv.Itoa(g.Mutations),
				s.time(g.FirstSeen), s.time(g.LastAt), i18n.T(ctx, seen)); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil || len(groups) < page {
			return err
		}
		if groups, err = d.gate.Drops(ctx, integration, groups[len(groups)-1].LastID, page); err != nil {
			return err
		}
	}
	return s.flush()
}

// listEmpty is the text of a list without rows: the message none, or filtered
// with the way back to the whole list.
func listEmpty(ctx context.Context, narrowed bool, none, filtered, all string) views.Empty {
	if narrowed {
		return views.Empty{Text: i18n.T(ctx, filtered), Href: all, LinkText: i18n.T(ctx, "list.reset")}
	}
	return views.Empty{Text: i18n.T(ctx, none)}
}

// dropReasons are the reasons for which something is dropped.
var dropReasons = []gate.Reason{gate.ReasonReplay}

func dropFilter(ctx context.Context, integration, seen string, reason gate.Reason) views.Filter {
	return views.Filter{
		Action: "/drops", Hidden: []views.Param{{Name: views.IntegrationParam, Value: integration}},
		Active: seen != "" || reason != "", Reset: link(integration, "/drops"),
		Fields: []views.FilterField{
			{Name: "seen", Label: i18n.T(ctx, "drops.acknowledged"), Value: seen, Options: []views.Option{
				{Value: "", Label: i18n.T(ctx, "list.all")},
				{Value: "no", Label: i18n.T(ctx, "drops.unseen"), Selected: seen == "no"},
			}},
			{Name: "reason", Label: i18n.T(ctx, "item.reason"), Value: string(reason), Options: reasonOptions(ctx, dropReasons, reason)},
		},
	}
}

func reasonOptions(ctx context.Context, reasons []gate.Reason, chosen gate.Reason) []views.Option {
	options := []views.Option{{Value: "", Label: i18n.T(ctx, "list.all")}}
	for _, r := range reasons {
		options = append(options, views.Option{Value: string(r), Label: reasonText(ctx, r), Selected: r == chosen})
	}
	return options
}

func dropRows(ctx context.Context, integration string, groups []gate.DropGroup) []views.DropRow {
	rows := make([]views.DropRow, len(groups))
	for i, g := range groups {
		rows[i] = views.DropRow{
			ID: fmt.Sprintf("drop-%d", g.LastID), Event: g.EventID, Account: g.Account,
			Href: link(integration, dropPath(g.Account, g.EventID)), Reason: reasonText(ctx, g.Reason),
			Effects: dropEffects(ctx, g), FirstAt: g.FirstAt, LastAt: g.LastAt, FirstSeen: g.FirstSeen,
			Enforced: g.Enforced, Mode: modeName(ctx, g.Mode), Acknowledged: g.Acknowledged,
		}
	}
	return rows
}

func dropEffects(ctx context.Context, g gate.DropGroup) string {
	var parts []string
	if g.Deliveries > 0 {
		parts = append(parts, i18n.N(ctx, "drops.deliveries", g.Deliveries))
	}
	if g.Mutations > 0 {
		parts = append(parts, i18n.N(ctx, "drops.mutations", g.Mutations))
	}
	return strings.Join(parts, ", ")
}

// dropEvent is the detail of an event's drops: the first and the later
// deliveries, and each mutation's decision, the dropped ones first.
func (d desk) dropEvent(c *web.Context) error {
	return d.eventPage(c, func(p *views.EventPage, ref gate.EventRef) {
		integration := c.Integration()
		p.Crumbs = []views.Crumb{{Text: c.T("drops.title"), Href: link(integration, "/drops")}}
		p.EventURL = link(integration, eventPath(ref.Account, ref.ID))
	})
}

// event is the permalink of an event with everything that came of it.
func (d desk) event(c *web.Context) error {
	return d.eventPage(c, func(p *views.EventPage, ref gate.EventRef) {
		integration := c.Integration()
		p.Crumbs = []views.Crumb{{Text: c.T("nav.history"), Href: link(integration, "/history")}}
		if p.Dropped != "" {
			p.DropURL = link(integration, dropPath(ref.Account, ref.ID))
		}
	})
}

func (d desk) eventPage(c *web.Context, surround func(*views.EventPage, gate.EventRef)) error {
	ctx, integration := c.Ctx(), c.Integration()
	account, err := param(c, "account")
	if err != nil {
		return err
	}
	id, err := param(c, "event")
	if err != nil {
		return err
	}
	ref := gate.EventRef{Account: account, ID: id}
	deliveries, err := d.gate.Deliveries(ctx, integration, ref)
	if err != nil {
		return err
	}
	mutations, err := d.gate.EventMutations(ctx, integration, ref, eventMutations)
	if err != nil {
		return err
	}
	if len(deliveries)+len(mutations) == 0 {
		return web.NotFound(fmt.Errorf("event %q of account %q", id, account))
	}
	p := views.EventPage{
		Page: c.Page("event.title", "history", "Event", id), Account: account, Event: id,
		OccurredAt: occurred(deliveries, mutations), Dropped: droppedText(ctx, deliveries, mutations),
		Deliveries: deliveryRows(ctx, deliveries), Mutations: mutationRows(ctx, integration, mutations),
	}
	if len(mutations) == eventMutations {
		p.More = c.T("event.more", "Count", eventMutations)
	}
	surround(&p, ref)
	return c.Render(http.StatusOK, views.Event(p))
}

func occurred(deliveries []gate.DeliveryRecord, mutations []gate.MutationRecord) string {
	for _, d := range deliveries {
		if d.Event.OccurredAt != "" {
			return d.Event.OccurredAt
		}
	}
	for _, m := range mutations {
		if m.Event.OccurredAt != "" {
			return m.Event.OccurredAt
		}
	}
	return ""
}

func droppedText(ctx context.Context, deliveries []gate.DeliveryRecord, mutations []gate.MutationRecord) string {
	var g gate.DropGroup
	for _, d := range deliveries {
		if d.Disposition == gate.Duplicate {
			g.Deliveries++
		}
	}
	for _, m := range mutations {
		if m.Verdict == gate.Drop {
			g.Mutations++
		}
	}
	if g.Deliveries+g.Mutations == 0 {
		return ""
	}
	return dropEffects(ctx, g)
}

func deliveryRows(ctx context.Context, deliveries []gate.DeliveryRecord) []views.DeliveryRow {
	rows := make([]views.DeliveryRow, len(deliveries))
	first := ""
	for i, d := range deliveries {
		sum := sha256.Sum256(d.Payload)
		hash := hex.EncodeToString(sum[:])
		if i == 0 {
			first = hash
		}
		rows[i] = views.DeliveryRow{
			Name: i18n.T(ctx, "event.delivery", "N", i+1), First: i == 0, ReceivedAt: d.ReceivedAt,
			Mark: dispositionMark(ctx, d.Disposition), Reason: reasonText(ctx, d.Reason), Mode: modeName(ctx, d.Mode),
			HandedOn: d.HandedOn, Hash: hash, SameAsFirst: hash == first, Payload: payloadText(d.Payload),
		}
		if i == 0 {
			rows[i].Name = i18n.T(ctx, "event.first_delivery")
		}
	}
	return rows
}

func dispositionMark(ctx context.Context, d gate.Disposition) views.Mark {
	tone := "ok"
	switch d {
	case gate.Duplicate:
		tone = "crit"
	case gate.Quarantined:
		tone = "warn"
	}
	return views.Mark{Tone: tone, Text: i18n.T(ctx, "disposition."+string(d))}
}

func mutationRows(ctx context.Context, integration string, list []gate.MutationRecord) []views.MutationRow {
	rows := make([]views.MutationRow, len(list))
	for i, m := range list {
		rows[i] = views.MutationRow{
			Name: mutationName(m.ID), Href: link(integration, mutationPath(m.ID)), Effect: m.Effect,
			Operation: i18n.T(ctx, "op."+string(m.Mutation.Op)), Entity: strings.TrimSpace(m.Mutation.Type + " " + m.EntityID()),
			Agent: m.Agent, Run: m.Run, ReceivedAt: m.ReceivedAt, Mark: decisionMark(ctx, m), Decision: decisionText(ctx, m),
			Ref: m.ExternalRef,
		}
		if id := m.EntityID(); id != "" {
			rows[i].EntityHref = link(integration, entityPath(m.Mutation.Type, id))
		}
		if m.State != "" {
			rows[i].State = stateMark(ctx, m).Text
		}
	}
	return rows
}
