package handlers

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

const (
	csvPage      = 500 // rows read at once for a download
	decisionsMax = 50  // decisions that the page itself shows
	groupPage    = 50  // rows on a page of a group
)

// planView is what goes onto the page besides the plan: what was typed, and
// what came of an attempt.
type planView struct {
	conflict string
	failure  string
	note     string
	moved    []snapshots.Moved
}

func (r recovery) rollback(c *web.Context) error {
	id, csv, err := csvID(c)
	if err != nil {
		return err
	}
	if csv {
		return r.rowsCSV(c, id)
	}
	return r.rollbackPage(c, http.StatusOK, id, planView{})
}

func (r recovery) rollbackPage(c *web.Context, status int, id int64, v planView) error {
	rb, err := r.snapshots.Rollback(c.Ctx(), id)
	if err != nil {
		return err
	}
	p, err := r.rollbackModel(c.Ctx(), c, rb)
	if err != nil {
		return err
	}
	p.Page = c.Page("rollback.title", "rollback", "Name", rollbackName(id))
	p.Page.Integration, p.Page.Path = rb.Integration, link(rb.Integration, rollbackPath(id)) // also in answer to a post
	p.Page.LiveURL = link(rb.Integration, "/stream/rollbacks/"+strconv.FormatInt(id, 10), "seen", seenOf(rb))
	p.Conflict, p.Error, p.Typed = v.conflict, v.failure, v.note
	if len(v.moved) > 0 {
		p.MovedWhy = i18n.N(c.Ctx(), "rollback.moved", len(v.moved))
		for _, m := range v.moved[:min(len(v.moved), decisionsMax)] {
			p.Moved = append(p.Moved, movedRow(c.Ctx(), rb.Integration, m))
		}
	}
	return c.Render(status, views.Rollback(p))
}

// seenOf is what of a rollback's state a page shows.
func seenOf(rb snapshots.Rollback) string {
	return string(rb.State) + "-" + strconv.FormatInt(rb.Version, 10)
}

// moves reports whether a rollback goes on by itself. Its page holds nothing
// that a person is about to decide, so that it may be renewed as a whole.
func moves(s snapshots.RollbackState) bool {
	return s == snapshots.RollbackPlanning || s == snapshots.RollbackApproved || s == snapshots.RollbackApplying
}

// rollbackModel is the page without its surroundings.
func (r recovery) rollbackModel(ctx context.Context, c *web.Context, rb snapshots.Rollback) (views.RollbackPage, error) {
	groups, err := r.snapshots.Groups(ctx, rb.ID)
	if err != nil {
		return views.RollbackPage{}, err
	}
	p := views.RollbackPage{
		Crumbs: []views.Crumb{{Text: i18n.T(ctx, "rollbacks.title"), Href: link(rb.Integration, "/rollbacks")}},
		Name:   rollbackName(rb.ID), Note: rb.Note, Facts: rollbackFacts(ctx, rb),
		Heading:  i18n.T(ctx, "rollback.heading", "Name", rollbackName(rb.ID), "Snapshot", snapshotName(rb.Integration, rb.SnapshotSeq)),
		Status:   rollbackStatus(ctx, rb, groups),
		AuditURL: link(rb.Integration, "/audit", "object", rollbackName(rb.ID)),
	}
	if !rb.PlannedAt.IsZero() {
		p.CSV = link(rb.Integration, rollbackPath(rb.ID)+".csv")
		p.Totals, p.TotalsTitle = totals(ctx, rb, groups), i18n.T(ctx, "rollback.totals")
		if !rb.ApprovedAt.IsZero() {
			p.TotalsTitle = i18n.T(ctx, "rollback.totals_done")
		}
	}
	for _, g := range groups {
		view := groupView(ctx, rb, g)
		switch g.Kind {
		case snapshots.RowCompensation:
			p.Groups = append(p.Groups, view)
		case snapshots.RowOutside:
			p.Outside = append(p.Outside, view)
		case snapshots.RowResidue:
			p.Residue = append(p.Residue, view)
		case snapshots.RowDecision:
			if err := r.addDecisions(ctx, c, &p, rb, g); err != nil {
				return p, err
			}
		}
	}
	if rb.State == snapshots.RollbackStopped {
		if p.Failed, err = r.failedRows(ctx, c, rb); err != nil {
			return p, err
		}
	}
	p.Approve = r.approveForm(ctx, c, rb)
	p.Actions = rollbackActions(c, rb)
	return p, nil
}

// addDecisions puts the rows of a group onto the page, as far as there is room.
func (r recovery) addDecisions(ctx context.Context, c *web.Context, p *views.RollbackPage, rb snapshots.Rollback, g snapshots.Group) error {
	room := decisionsMax - len(p.Decide)
	if room < g.Count {
		p.Groups = append(p.Groups, groupView(ctx, rb, g))
		p.MoreRows = i18n.T(ctx, "rollback.more_decisions")
	}
	if room < 1 {
		return nil
	}
	rows, err := r.snapshots.Rows(ctx, rb.ID, g.Key, 0, room)
	if err != nil {
		return err
	}
	for _, w := range rows {
		p.Decide = append(p.Decide, rowView(ctx, c, rb, w))
	}
	return nil
}

// failedRows finds what stopped a rollback. Rows are sent in their order and
// the first failure stops it, so that what follows was not tried.
func (r recovery) failedRows(ctx context.Context, c *web.Context, rb snapshots.Rollback) ([]views.RollbackRow, error) {
	var failed []views.RollbackRow
	for after := 0; ; {
		rows, err := r.snapshots.Rows(ctx, rb.ID, "", after, csvPage)
		if err != nil {
			return nil, err
		}
		for _, w := range rows {
			if w.State == snapshots.RowFailed {
				view := rowView(ctx, c, rb, w)
				view.SkipHref = link(rb.Integration, rollbackPath(rb.ID)+"/skip")
				failed = append(failed, view)
			}
			after = w.Row
		}
		if len(rows) < csvPage || len(failed) > 0 {
			return failed, nil
		}
	}
}

func rollbackFacts(ctx context.Context, rb snapshots.Rollback) []views.Fact {
	var facts []views.Fact
	add := func(id, text, href string, mono bool) {
		if text != "" {
			facts = append(facts, views.Fact{Name: i18n.T(ctx, id), Text: text, Href: href, Mono: mono})
		}
	}
	add("rollbacks.snapshot", snapshotName(rb.Integration, rb.SnapshotSeq), link(rb.Integration, snapshotPath(rb.SnapshotSeq)), false)
	add("rollbacks.suspects", i18n.Number(ctx, rb.Suspects), "", false)
	add("rollbacks.created", whoWhen(ctx, rb.CreatedBy, i18n.Time(ctx, rb.CreatedAt)), "", false)
	add("rollback.planned", i18n.Time(ctx, rb.PlannedAt), "", false)
	if rb.ApprovedBy == "" {
		add("rollback.expires", i18n.Time(ctx, rb.ExpiresAt), "", false)
	} else {
		add("rollbacks.approved", whoWhen(ctx, rb.ApprovedBy, i18n.Time(ctx, rb.ApprovedAt)), "", false)
	}
	add("rollbacks.applied", i18n.Time(ctx, rb.AppliedAt), "", false)
	add("rollback.hash", fullHash(rb.Hash), "", true)
	return facts
}

func whoWhen(ctx context.Context, by, at string) string {
	return i18n.T(ctx, "rollback.who_when", "By", by, "At", at)
}

// approveForm is the one click, bound to version and hash; where it cannot be
// made the button says why.
func (r recovery) approveForm(ctx context.Context, c *web.Context, rb snapshots.Rollback) views.ApproveForm {
	n := rb.Summary.Compensations
	f := views.ApproveForm{
		Show: rb.State == snapshots.RollbackReady, Action: link(rb.Integration, rollbackPath(rb.ID)+"/approve"),
		Version: rb.Version, Hash: hex.EncodeToString(rb.Hash[:]), PlannedAt: rb.PlannedAt, ExpiresAt: rb.ExpiresAt,
		Disabled: plannersOnly(c),
	}
	switch {
	case rb.State == snapshots.RollbackPlanning:
		f.Button, f.Disabled = i18n.T(ctx, "rollback.approve"), i18n.T(ctx, "rollback.still_planning")
	case f.Show:
		f.Button = i18n.N(ctx, "rollback.approve_n", n, "Integration", rb.Integration)
	}
	switch {
	case !f.Show || f.Disabled != "":
		return f
	case !c.Now.Before(rb.ExpiresAt):
		f.Disabled = i18n.T(ctx, "rollback.expired_why")
	case n == 0:
		f.Disabled = i18n.T(ctx, "rollback.nothing")
	}
	i, err := r.gate.Integration(ctx, rb.Integration)
	if err != nil {
		r.failed(ctx, c, "integration", err)
		return f
	}
	if i.Mode != gate.ModeEnforce {
		f.Warning = i18n.T(ctx, "rollback.mode_warning", "Mode", modeName(ctx, i.Mode))
		f.WarnHref, f.WarnLink = link(rb.Integration, "/integrations"), i18n.T(ctx, "nav.integrations")
	}
	return f
}

func rollbackActions(c *web.Context, rb snapshots.Rollback) views.RollbackActions {
	a := views.RollbackActions{Version: rb.Version, Disabled: plannersOnly(c)}
	path := func(action string) string { return link(rb.Integration, rollbackPath(rb.ID)+"/"+action) }
	switch rb.State {
	case snapshots.RollbackPlanning, snapshots.RollbackApproved:
		a.Cancel = path("cancel")
	case snapshots.RollbackReady:
		a.Cancel, a.Replan = path("cancel"), path("replan")
	case snapshots.RollbackStopped:
		a.Resume, a.Replan, a.Cancel = path("resume"), path("replan"), path("cancel")
	case snapshots.RollbackFailed, snapshots.RollbackExpired, snapshots.RollbackCancelled:
		a.Replan = path("replan")
	}
	return a
}

func movedRow(ctx context.Context, integration string, m snapshots.Moved) views.MovedRow {
	name := m.EntityType + " " + m.EntityID
	return views.MovedRow{
		Name: name, Href: link(integration, entityPath(m.EntityType, m.EntityID)), Subject: m.Subject, By: m.By, At: m.At,
		Diff: views.NewDiff(name, []string{i18n.T(ctx, "rollback.col_seen"), i18n.T(ctx, "rollback.col_now")}, m.Was, m.Is),
	}
}

// rollbackStream renews the status, and the rest of the page where the rollback
// has moved on while nobody could be about to decide. What a person decides on
// never changes under the hand: the status then leads to the page as it is.
func (r recovery) rollbackStream(c *web.Context) error {
	id, err := positive(c.Param("id"))
	if err != nil {
		return err
	}
	rb, err := r.snapshots.Rollback(c.Ctx(), id)
	if err != nil {
		return err
	}
	seen, self := c.QueryParam("seen"), c.Request().URL.RequestURI()
	return c.SSE(topics(rb.Integration, "rollback:"+strconv.FormatInt(id, 10)), func(ctx context.Context, send web.Send) error {
		now, err := r.snapshots.Rollback(ctx, id)
		if err != nil {
			return err
		}
		u := views.RollbackUpdate{Page: views.Page{Now: c.Now, Lang: i18n.Lang(ctx), LiveURL: self}}
		groups, err := r.snapshots.Groups(ctx, id)
		if err != nil {
			return err
		}
		u.Status = rollbackStatus(ctx, now, groups)
		if seen != "" && seen != seenOf(now) {
			if !seenMoves(seen) {
				u.Status.ShowHref = link(now.Integration, rollbackPath(id))
				return send("", views.RollbackLive(u))
			}
			body, err := r.rollbackModel(ctx, c, now)
			if err != nil {
				return err
			}
			u.Body, u.Banners = &body, r.banners(ctx, c, now)
		}
		if err := send("", views.RollbackLive(u)); err != nil {
			return err
		}
		seen = seenOf(now)
		return nil
	})
}

// banners are the notices of every page as they are after a rollback has moved
// on; none where they cannot be read, so that the page keeps its own.
func (r recovery) banners(ctx context.Context, c *web.Context, rb snapshots.Rollback) []views.Banner {
	switch rb.State {
	case snapshots.RollbackApplying, snapshots.RollbackStopped, snapshots.RollbackApplied:
	default:
		return nil
	}
	i, err := r.gate.Integration(ctx, rb.Integration)
	if err != nil {
		r.failed(ctx, c, "integration", err)
		return nil
	}
	return append(modeBanners(ctx, i), rollbackBanner(ctx, rb))
}

// seenMoves reports whether a page that shows this state may be renewed.
func seenMoves(seen string) bool {
	state, _, _ := strings.Cut(seen, "-")
	return moves(snapshots.RollbackState(state))
}
