package handlers

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// positive is a whole number above zero of a path; anything else is not found.
func positive(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, web.NotFound(fmt.Errorf("number %q", text))
	}
	return n, nil
}

func snapshotPath(seq int64) string { return "/snapshots/" + strconv.FormatInt(seq, 10) }

func snapshotName(integration string, seq int64) string {
	return "S-" + integration + "-" + strconv.FormatInt(seq, 10)
}

// rollbackTones is how loud each state is: red only for what stopped half-way.
var rollbackTones = map[snapshots.RollbackState]string{
	snapshots.RollbackStopped: "crit", snapshots.RollbackFailed: "crit",
	snapshots.RollbackReady: "warn", snapshots.RollbackPlanning: "warn", snapshots.RollbackApproved: "warn", snapshots.RollbackApplying: "warn",
}

func rollbackMark(ctx context.Context, s snapshots.RollbackState) views.Mark {
	tone, loud := rollbackTones[s]
	if !loud {
		tone = "ok"
	}
	return views.Mark{Tone: tone, Text: i18n.T(ctx, "rollback.state."+string(s))}
}

func (r recovery) rollbacks(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	before, err := number(c.QueryParam("before"))
	if err != nil {
		return err
	}
	list, err := r.snapshots.Rollbacks(ctx, integration, before, listSize)
	if err != nil {
		return err
	}
	p := views.RollbacksPage{
		Page: c.Page("rollbacks.title", "rollback"), Disabled: plannersOnly(c), NewHref: link(integration, "/rollbacks/new"),
		Empty: views.Empty{Text: c.T("rollbacks.none")},
		Pager: views.Pager{Shown: len(list), CSV: link(integration, "/rollbacks.csv")},
	}
	for _, rb := range list {
		p.Rows = append(p.Rows, rollbackLine(ctx, rb))
	}
	if before > 0 {
		p.Pager.First = link(integration, "/rollbacks")
	}
	if len(list) == listSize {
		p.Pager.Next = link(integration, "/rollbacks", "before", itoa(list[len(list)-1].ID))
	}
	return c.Render(http.StatusOK, views.Rollbacks(p))
}

func rollbackLine(ctx context.Context, rb snapshots.Rollback) views.RollbackLine {
	l := views.RollbackLine{
		Name: rollbackName(rb.ID), Href: link(rb.Integration, rollbackPath(rb.ID)), Mark: rollbackMark(ctx, rb.State),
		Snapshot: snapshotName(rb.Integration, rb.SnapshotSeq), SnapshotHref: link(rb.Integration, snapshotPath(rb.SnapshotSeq)),
		Suspects: i18n.Number(ctx, rb.Suspects), CreatedAt: rb.CreatedAt, CreatedBy: rb.CreatedBy,
		ApprovedAt: rb.ApprovedAt, ApprovedBy: rb.ApprovedBy, Note: rb.Note,
	}
	if !rb.PlannedAt.IsZero() {
		l.Effect = i18n.N(ctx, "rollback.corrections", rb.Summary.Compensations)
	}
	return l
}

func (r recovery) rollbacksCSV(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	list, err := r.snapshots.Rollbacks(ctx, integration, 0, csvPage)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "rollbacks-"+integration, c.T("rollbacks.rollback"), c.T("item.state"), c.T("rollbacks.snapshot"),
		c.T("rollbacks.suspects"), c.T("rollbacks.effect"), c.T("rollbacks.created"), c.T("rollbacks.created_by"),
		c.T("rollbacks.approved"), c.T("rollbacks.approved_by"), c.T("rollbacks.applied"), c.T("rollback.note"))
	if err != nil {
		return err
	}
	for len(list) > 0 {
		for _, rb := range list {
			if err := s.row(rollbackName(rb.ID), rollbackMark(ctx, rb.State).Text, snapshotName(rb.Integration, rb.SnapshotSeq),
				strconv.Itoa(rb.Suspects), strconv.Itoa(rb.Summary.Compensations), s.time(rb.CreatedAt), rb.CreatedBy,
				s.time(rb.ApprovedAt), rb.ApprovedBy, s.time(rb.AppliedAt), rb.Note); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil || len(list) < csvPage {
			return err
		}
		if list, err = r.snapshots.Rollbacks(ctx, integration, list[len(list)-1].ID, csvPage); err != nil {
			return err
		}
	}
	return s.flush()
}
