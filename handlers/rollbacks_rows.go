package handlers

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// The choices of a row.
const (
	choiceKeep    = "keep"
	choiceRestore = "restore"
)

// rollbackStatus says in words where the rollback stands.
func rollbackStatus(ctx context.Context, rb snapshots.Rollback, groups []snapshots.Group) views.RollbackStatus {
	s := views.RollbackStatus{State: string(rb.State), Mark: rollbackMark(ctx, rb.State)}
	kv := []any{"By", rb.ApprovedBy, "At", i18n.Time(ctx, rb.ApprovedAt), "Count", rb.Summary.Compensations,
		"Integration", rb.Integration, "Error", rb.Error, "Expires", i18n.Time(ctx, rb.ExpiresAt)}
	s.Text = i18n.T(ctx, "rollback.text."+string(rb.State), kv...)
	switch rb.State {
	case snapshots.RollbackPlanning, snapshots.RollbackApproved, snapshots.RollbackApplying:
		if rb.ProgressStep != "" {
			s.Step = i18n.T(ctx, "rollback.step."+rb.ProgressStep)
		}
		s.Done, s.Total = rb.ProgressDone, rb.ProgressTotal
	case snapshots.RollbackApplied:
		s.Banner = "ok"
		s.Closed = i18n.N(ctx, "rollback.closed", rb.Suspects)
	case snapshots.RollbackStopped:
		s.Banner = "crit"
	}
	if !rb.ApprovedAt.IsZero() {
		s.Counts = stateCounts(ctx, sentCounts(rb.Summary.Compensations, groups))
	}
	if rb.ReadBack != nil {
		s.ReadBack = i18n.T(ctx, "rollback.readback", "Compared", rb.ReadBack.Compared, "Total", rb.Summary.Compensations, "Differ", rb.ReadBack.Differ)
		s.Differ, s.Names = rb.ReadBack.Differ > 0, rb.ReadBack.Names
	}
	return s
}

// rowStates are the states of a row in the order of its life.
var rowStates = []snapshots.RowState{
	snapshots.RowPlanned, snapshots.RowSending, snapshots.RowApplied, snapshots.RowVerified, snapshots.RowFailed, snapshots.RowSkipped,
}

var rowTones = map[snapshots.RowState]string{
	snapshots.RowPlanned: "warn", snapshots.RowSending: "warn", snapshots.RowFailed: "crit", snapshots.RowSkipped: "warn",
}

func rowMark(ctx context.Context, s snapshots.RowState) views.Mark {
	tone, loud := rowTones[s]
	if !loud {
		tone = "ok"
	}
	return views.Mark{Tone: tone, Text: i18n.T(ctx, "rollback.row."+string(s))}
}

// sentCounts counts the rows that approval sends by their state. What is still
// to be sent is the rest: a row that is kept stays planned for ever.
func sentCounts(total int, groups []snapshots.Group) map[snapshots.RowState]int {
	sum := map[snapshots.RowState]int{}
	for _, g := range groups {
		for state, n := range g.ByState {
			if state != snapshots.RowPlanned {
				sum[state] += n
				total -= n
			}
		}
	}
	sum[snapshots.RowPlanned] = total
	return sum
}

func stateCounts(ctx context.Context, by map[snapshots.RowState]int) []views.StateCount {
	var counts []views.StateCount
	for _, s := range rowStates {
		if by[s] > 0 {
			counts = append(counts, views.StateCount{Mark: rowMark(ctx, s), Count: i18n.Number(ctx, by[s])})
		}
	}
	return counts
}

// entityTypes are the record types that have a word of their own.
var entityTypes = map[string]bool{"visit": true, "client": true}

// records counts entities in words: "312 visits".
func records(ctx context.Context, typ string, n int) string {
	if entityTypes[typ] {
		return i18n.N(ctx, "entity."+typ, n)
	}
	return i18n.N(ctx, "rollback.records", n, "Type", typ)
}

// totals reads a plan as sentences.
func totals(ctx context.Context, rb snapshots.Rollback, groups []snapshots.Group) []string {
	var list []string
	for _, g := range groups {
		if g.Kind == snapshots.RowCompensation {
			list = append(list, groupText(ctx, g))
		}
	}
	if len(list) == 0 {
		list = append(list, i18n.T(ctx, "rollback.total_none"))
	}
	add := func(id string, n int) {
		if n > 0 {
			list = append(list, i18n.N(ctx, id, n))
		}
	}
	add("rollback.total_decisions", rb.Summary.Decisions)
	list = append(list, i18n.N(ctx, "rollback.total_later", rb.Summary.LaterKept))
	add("rollback.total_outside", rb.Summary.Outside)
	add("rollback.total_residue", rb.Summary.Residue)
	return append(list, i18n.N(ctx, "rollback.total_checked", rb.Summary.Checked))
}

// groupText reads like rows as one line: "312 visits removed for 88 clients".
func groupText(ctx context.Context, g snapshots.Group) string {
	action := string(g.Op)
	if g.Kind != snapshots.RowCompensation {
		action = string(g.Kind)
	}
	return i18n.T(ctx, "rollback.group."+action, "Records", records(ctx, g.Type, g.Count), "For", i18n.N(ctx, "rollback.for_subjects", g.Subjects))
}

func groupView(ctx context.Context, rb snapshots.Rollback, g snapshots.Group) views.RollbackGroup {
	v := views.RollbackGroup{
		Key: g.Key, Href: link(rb.Integration, rollbackPath(rb.ID)+"/groups/"+segment(g.Key)), Text: groupText(ctx, g),
		Fields: strings.Join(g.Fields, ", "), Count: i18n.Number(ctx, g.Count), Sample: plainRow(ctx, rb, g.Sample),
	}
	if !rb.ApprovedAt.IsZero() && g.Kind == snapshots.RowCompensation {
		v.Counts = stateCounts(ctx, g.ByState)
	}
	return v
}

// plainRow is a row without what can be done about it.
func plainRow(ctx context.Context, rb snapshots.Rollback, w snapshots.Row) views.RollbackRow {
	v := views.RollbackRow{
		Row: w.Row, Anchor: "row-" + strconv.Itoa(w.Row), Name: w.EntityType + " " + w.EntityID, Subject: w.Subject,
		Detail: w.Detail, Diff: rowDiff(ctx, rb, w), Version: rb.Version, Mark: views.Mark{Tone: "warn", Text: i18n.T(ctx, "rollback.kind."+string(w.Kind))},
	}
	if w.EntityID != "" {
		v.Href = link(rb.Integration, entityPath(w.EntityType, w.EntityID))
	}
	if w.Kind == snapshots.RowDecision || w.Kind == snapshots.RowOutside {
		v.By = i18n.T(ctx, "rollback.changed_by", "By", w.LiveBy, "At", i18n.Time(ctx, w.LiveAt))
		if w.LiveBy == "" || w.LiveAt.IsZero() {
			v.By = ""
		}
	}
	if w.MutationID != 0 {
		v.Sent, v.SentHref = mutationName(w.MutationID), link(rb.Integration, mutationPath(w.MutationID))
	}
	v.Undoes, v.Later = mutationLinks(rb.Integration, w.Undoes), mutationLinks(rb.Integration, w.Contaminated)
	if sends(w) {
		v.Text = i18n.T(ctx, "op."+string(w.Op))
		if !rb.ApprovedAt.IsZero() {
			v.Mark = rowMark(ctx, w.State)
		}
	}
	return v
}

// sends reports whether approval sends the row.
func sends(w snapshots.Row) bool {
	return (w.Kind == snapshots.RowCompensation || w.Kind == snapshots.RowDecision) && w.Choice == choiceRestore
}

func mutationLinks(integration string, ids []int64) []views.Crumb {
	links := make([]views.Crumb, len(ids))
	for i, id := range ids {
		links[i] = views.Crumb{Text: mutationName(id), Href: link(integration, mutationPath(id))}
	}
	return links
}

// rowView adds what the person may do about a row.
func rowView(ctx context.Context, c *web.Context, rb snapshots.Rollback, w snapshots.Row) views.RollbackRow {
	v := plainRow(ctx, rb, w)
	v.Disabled = plannersOnly(c)
	if w.Kind == snapshots.RowCompensation || w.Kind == snapshots.RowDecision {
		v.Choice = w.Choice
		if w.Choice == choiceKeep {
			v.Text = i18n.T(ctx, "rollback.kept")
		}
		if rb.State == snapshots.RollbackReady {
			v.ChoiceHref = link(rb.Integration, rollbackPath(rb.ID)+"/choice")
		}
	}
	return v
}

// rowDiff compares what is with what the row would make of it: of the very
// bytes that approval would send. What was believed is a third column where
// somebody else changed the record.
func rowDiff(ctx context.Context, rb snapshots.Rollback, w snapshots.Row) views.Diff {
	name := w.EntityType + " " + w.EntityID
	now := i18n.T(ctx, "rollback.col_live")
	if !rb.ApprovedAt.IsZero() {
		now = i18n.T(ctx, "rollback.col_seen")
	}
	switch w.Kind {
	case snapshots.RowOutside, snapshots.RowResidue:
		return views.NewDiff(name, []string{i18n.T(ctx, "rollback.col_base"), now}, w.Base, w.Live)
	case snapshots.RowDecision:
		return views.NewDiff(name, []string{now, i18n.T(ctx, "rollback.col_restored"), i18n.T(ctx, "rollback.col_base")},
			w.Live, result(w.Live, gate.Mutation{Op: w.Op, Body: w.Body}), w.Base)
	}
	return views.NewDiff(name, []string{now, i18n.T(ctx, "rollback.col_after")}, w.Live, result(w.Live, gate.Mutation{Op: w.Op, Body: w.Body}))
}

// rollbackGroup is the rows of one group, page by page.
func (r recovery) rollbackGroup(c *web.Context) error {
	id, err := positive(c.Param("id"))
	if err != nil {
		return err
	}
	key, err := param(c, "key")
	if err != nil {
		return err
	}
	after, err := number(c.QueryParam("after"))
	if err != nil {
		return err
	}
	ctx := c.Ctx()
	rb, err := r.snapshots.Rollback(ctx, id)
	if err != nil {
		return err
	}
	groups, err := r.snapshots.Groups(ctx, id)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Key == key {
			return r.groupRows(c, rb, g, int(after))
		}
	}
	return web.NotFound(fmt.Errorf("%s has no group %q", rollbackName(id), key))
}

func (r recovery) groupRows(c *web.Context, rb snapshots.Rollback, g snapshots.Group, after int) error {
	ctx := c.Ctx()
	rows, err := r.snapshots.Rows(ctx, rb.ID, g.Key, after, groupPage)
	if err != nil {
		return err
	}
	p := views.RollbackGroupPage{
		Page:  c.Page("rollback.title", "rollback", "Name", rollbackName(rb.ID)),
		Group: groupView(ctx, rb, g), Empty: views.Empty{Text: c.T("rollback.no_rows")},
		Crumbs: []views.Crumb{{Text: c.T("rollbacks.title"), Href: link(rb.Integration, "/rollbacks")},
			{Text: rollbackName(rb.ID), Href: link(rb.Integration, rollbackPath(rb.ID))}},
		Pager: views.Pager{Shown: len(rows), Total: int64(g.Count), CSV: link(rb.Integration, rollbackPath(rb.ID)+".csv", "group", g.Key)},
	}
	p.Page.Integration = rb.Integration
	for _, w := range rows {
		p.Rows = append(p.Rows, rowView(ctx, c, rb, w))
	}
	path := rollbackPath(rb.ID) + "/groups/" + segment(g.Key)
	if after > 0 {
		p.Pager.First = link(rb.Integration, path)
	}
	if len(rows) == groupPage {
		p.Pager.Next = link(rb.Integration, path, "after", strconv.Itoa(rows[len(rows)-1].Row))
	}
	return c.Render(http.StatusOK, views.RollbackGroupRows(p))
}

// rowsCSV is every row of a plan, or of one group.
func (r recovery) rowsCSV(c *web.Context, id int64) error {
	ctx, group := c.Ctx(), c.QueryParam("group")
	rb, err := r.snapshots.Rollback(ctx, id)
	if err != nil {
		return err
	}
	rows, err := r.snapshots.Rows(ctx, id, group, 0, csvPage)
	if err != nil {
		return err
	}
	s, err := startCSV(c, rollbackName(id), c.T("rollback.row_nr"), c.T("rollback.kind_head"), c.T("rollback.operation"), c.T("rollback.type"),
		c.T("history.entity"), c.T("desk.subject"), c.T("rollback.choice"), c.T("item.state"), c.T("rollback.col_live"), c.T("rollback.sent_body"),
		c.T("rollback.undoes"), c.T("rollback.sent_as"), c.T("rollback.done_at"), c.T("rollback.detail"))
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		for _, w := range rows {
			sent := ""
			if w.MutationID != 0 {
				sent = mutationName(w.MutationID)
			}
			var undoes []string
			for _, m := range w.Undoes {
				undoes = append(undoes, mutationName(m))
			}
			state := ""
			if sends(w) {
				state = rowMark(ctx, w.State).Text
			}
			if err := s.row(strconv.Itoa(w.Row), i18n.T(ctx, "rollback.kind."+string(w.Kind)), string(w.Op), w.EntityType, w.EntityID, w.Subject,
				w.Choice, state, string(w.Live), string(w.Body), strings.Join(undoes, " "), sent, s.time(w.DoneAt), w.Detail); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil || len(rows) < csvPage {
			return err
		}
		if rows, err = r.snapshots.Rows(ctx, rb.ID, group, rows[len(rows)-1].Row, csvPage); err != nil {
			return err
		}
	}
	return s.flush()
}
