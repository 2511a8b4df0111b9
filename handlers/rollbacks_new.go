package handlers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

const (
	suspectSample = 20 // suspects that the form shows
	undecidedMax  = 50 // undecided pairs that the form lists
	choicesAround = 6  // snapshots to choose from on either side
)

// planForm is what a person had chosen when a plan was not made.
type planForm struct {
	note     string
	left     string // mutations to leave out, as typed
	failure  string
	conflict string
}

func (r recovery) newRollback(c *web.Context) error {
	seq, err := number(c.QueryParam("snapshot"))
	if err != nil {
		return err
	}
	return r.newRollbackPage(c, http.StatusOK, seq, planForm{})
}

// newRollbackPage proposes a plan: from the snapshot that was chosen, else from
// the last good one.
func (r recovery) newRollbackPage(c *web.Context, status int, seq int64, typed planForm) error {
	ctx, integration := c.Ctx(), c.Integration()
	p := views.RollbackNewPage{
		Page:   c.Page("rollback.new.title", "rollback"),
		Crumbs: []views.Crumb{{Text: c.T("rollbacks.title"), Href: link(integration, "/rollbacks")}},
		Action: link(integration, "/rollbacks"), Note: typed.note, Left: typed.left, Error: typed.failure, Conflict: typed.conflict,
		Disabled: plannersOnly(c),
	}
	p.Page.Path = link(integration, "/rollbacks/new", "snapshot", itoa(seq)) // also in answer to a post
	good, reason, err := r.snapshots.LastGood(ctx, integration)
	if err != nil && !errors.Is(err, gate.ErrNotFound) {
		return err
	}
	none := err != nil
	p.Why, p.WhyHref, p.WhyLink = lastGoodReason(ctx, integration, good, reason, none)
	seq = cmp.Or(seq, good.Seq)
	if seq == 0 {
		p.Empty = views.Empty{Text: c.T("rollback.new.no_snapshot"), Href: link(integration, "/snapshots"), LinkText: c.T("snapshots.title")}
		return c.Render(status, views.RollbackNew(p))
	}
	proposal, err := r.snapshots.Propose(ctx, integration, seq)
	if err != nil {
		return err
	}
	if p.Choices, err = r.snapshotChoices(ctx, integration, seq, good.Seq); err != nil {
		return err
	}
	p.Snapshot = snapshotChoice(ctx, proposal.Snapshot, seq, good.Seq)
	fillProposal(ctx, &p, proposal)
	return c.Render(status, views.RollbackNew(p))
}

// lastGoodReason says why a snapshot is the last good one: it is the last
// before an event was processed again.
func lastGoodReason(ctx context.Context, integration string, good snapshots.Snapshot, reason gate.Pair, none bool) (text, href, linkText string) {
	if reason.ID == 0 {
		if none {
			return "", "", ""
		}
		return i18n.T(ctx, "snapshots.why_newest"), "", ""
	}
	at, event := i18n.Time(ctx, reason.Second.ReceivedAt), reason.Second.Event.ID
	href, linkText = link(integration, pairPath(reason.ID)), pairName(reason.ID)
	if none {
		return i18n.T(ctx, "snapshots.why_none", "Event", event, "At", at), href, linkText
	}
	return i18n.T(ctx, "snapshots.why", "Seq", good.Seq, "Event", event, "At", at), href, linkText
}

func (r recovery) snapshotChoices(ctx context.Context, integration string, chosen, good int64) ([]views.SnapshotChoice, error) {
	list, err := r.snapshots.List(ctx, integration, chosen+choicesAround+1, 2*choicesAround+1)
	if err != nil {
		return nil, err
	}
	choices := make([]views.SnapshotChoice, len(list))
	for i, s := range list {
		choices[i] = snapshotChoice(ctx, s, chosen, good)
	}
	return choices, nil
}

func snapshotChoice(ctx context.Context, s snapshots.Snapshot, chosen, good int64) views.SnapshotChoice {
	return views.SnapshotChoice{
		Name: snapshotName(s.Integration, s.Seq), Seq: s.Seq, TakenAt: s.TakenAt, Entities: i18n.Number(ctx, s.Entities),
		Href: link(s.Integration, "/rollbacks/new", "snapshot", itoa(s.Seq)), PageHref: link(s.Integration, snapshotPath(s.Seq)),
		Chosen: s.Seq == chosen, Good: s.Seq == good, Mark: chainMark(ctx, s), Broken: s.VerifyError != "",
	}
}

// chainMark is what the last verification found of a snapshot.
func chainMark(ctx context.Context, s snapshots.Snapshot) views.Mark {
	switch {
	case s.VerifyError != "":
		return views.Mark{Tone: "crit", Text: i18n.T(ctx, "snapshots.chain.broken")}
	case s.VerifiedAt.IsZero():
		return views.Mark{Tone: "unk", Text: i18n.T(ctx, "snapshots.chain.unverified")}
	}
	return views.Mark{Tone: "ok", Text: i18n.T(ctx, "snapshots.chain.whole")}
}

func fillProposal(ctx context.Context, p *views.RollbackNewPage, proposal snapshots.Proposal) {
	p.Shown, p.Seen = len(proposal.Suspects), digest(proposal.Suspects)
	pairs := map[int64]bool{}
	for _, s := range proposal.Suspects {
		pairs[s.PairID] = true
	}
	p.Counts = i18n.N(ctx, "rollback.suspects", len(proposal.Suspects)) + " " +
		i18n.N(ctx, "rollback.from_pairs", len(pairs)) + "; " + i18n.N(ctx, "rollback.undecided", len(proposal.Undecided))
	if proposal.Earlier > 0 {
		p.Earlier = i18n.N(ctx, "rollback.earlier", proposal.Earlier)
	}
	for _, s := range proposal.Suspects[:min(suspectSample, len(proposal.Suspects))] {
		p.Suspects = append(p.Suspects, suspectRow(ctx, s))
	}
	if more := len(proposal.Suspects) - len(p.Suspects); more > 0 {
		p.More = i18n.N(ctx, "rollback.more_suspects", more)
	}
	for _, pair := range proposal.Undecided[:min(undecidedMax, len(proposal.Undecided))] {
		p.Undecided = append(p.Undecided, pairRow(ctx, pair))
	}
	if p.Disabled == "" && p.Shown == 0 {
		p.Disabled = i18n.T(ctx, "rollback.nothing_suspect")
	}
}

func suspectRow(ctx context.Context, s snapshots.Suspect) views.SuspectRow {
	m := s.Mutation
	row := views.SuspectRow{
		Name: mutationName(m.ID), Value: strconv.FormatInt(m.ID, 10), Href: link(m.Integration, mutationPath(m.ID)),
		What: what(ctx, m.Mutation), Event: m.Event.ID, ReceivedAt: m.ReceivedAt, Entity: m.EntityID(),
	}
	if row.Entity != "" {
		row.EntityHref = link(m.Integration, entityPath(m.Mutation.Type, row.Entity))
	}
	if s.PairID != 0 {
		row.Pair, row.PairHref = pairName(s.PairID), link(m.Integration, pairPath(s.PairID))
	}
	if s.Twin != 0 {
		row.Twin, row.TwinHref = mutationName(s.Twin), link(m.Integration, mutationPath(s.Twin))
	}
	return row
}

// digest tells apart two lists of suspects, so that a plan is made of the ones
// that the person saw.
func digest(suspects []snapshots.Suspect) string {
	h := sha256.New()
	for _, s := range suspects {
		_ = binary.Write(h, binary.BigEndian, s.Mutation.ID) // a hash takes every write
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// createRollback proposes again and makes the plan when that is still what the
// person saw; the suspects themselves are not in the form.
func (r recovery) createRollback(c *web.Context) error {
	form, err := c.Form()
	if err != nil {
		return err
	}
	seq, err := number(form.Get("snapshot"))
	if err != nil {
		return err
	}
	typed := planForm{note: strings.TrimSpace(form.Get("note")), left: strings.Join(form["exclude"], " ")}
	left, ok := readExcluded(form["exclude"])
	if !ok {
		typed.failure = c.T("rollback.exclude_unreadable")
		return r.newRollbackPage(c, http.StatusUnprocessableEntity, seq, typed)
	}
	integration := c.Integration()
	proposal, err := r.snapshots.Propose(c.Ctx(), integration, seq)
	if err != nil {
		return err
	}
	if digest(proposal.Suspects) != form.Get("seen") {
		shown, _ := strconv.Atoi(form.Get("shown")) // it is only said, not relied on
		typed.conflict = c.T("rollback.proposal_moved", "Shown", shown, "Now", len(proposal.Suspects))
		return r.newRollbackPage(c, http.StatusConflict, seq, typed)
	}
	kept := slices.DeleteFunc(proposal.Suspects, func(s snapshots.Suspect) bool { return left[s.Mutation.ID] })
	rb, err := r.snapshots.CreatePlan(c.Ctx(), person(c), snapshots.PlanRequest{
		Integration: integration, SnapshotSeq: seq, Mutations: kept, Note: typed.note,
	})
	switch {
	case errors.Is(err, gate.ErrStale):
		typed.conflict = c.T("desk.stale")
		return r.newRollbackPage(c, http.StatusConflict, seq, typed)
	case errors.Is(err, gate.ErrMalformed):
		typed.failure = c.T("rollback.request_refused")
		return r.newRollbackPage(c, http.StatusUnprocessableEntity, seq, typed)
	case err != nil:
		return err
	}
	return c.Redirect(link(rb.Integration, rollbackPath(rb.ID)))
}

// readExcluded reads mutations as people write them: "M-12, 15".
func readExcluded(values []string) (map[int64]bool, bool) {
	left := map[int64]bool{}
	for _, word := range strings.FieldsFunc(strings.Join(values, " "), func(r rune) bool { return strings.ContainsRune(" ,;\t\r\n", r) }) {
		id, err := positive(strings.TrimPrefix(strings.ToUpper(word), "M-"))
		if err != nil {
			return nil, false
		}
		left[id] = true
	}
	return left, true
}
