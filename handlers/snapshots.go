package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

func (r recovery) snapshotList(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	before, err := number(c.QueryParam("before"))
	if err != nil {
		return err
	}
	p := views.SnapshotsPage{
		Page: c.Page("snapshots.title", "snapshots"), Empty: views.Empty{Text: c.T("snapshots.none")},
		Take: link(integration, "/snapshots/take"), Verify: link(integration, "/snapshots/verify"), Disabled: disabledFor(c),
		Pager: views.Pager{CSV: link(integration, "/snapshots.csv")},
	}
	good, more, err := r.snapshotRows(ctx, integration, before, &p)
	if err != nil {
		return err
	}
	p.Chain = r.chainLine(ctx, c, integration)
	p.Pager.Shown = len(p.Rows)
	if before > 0 {
		p.Pager.First = link(integration, "/snapshots")
	}
	if more {
		p.Pager.Next = link(integration, "/snapshots", "before", itoa(p.Rows[len(p.Rows)-1].Seq))
	}
	if good != 0 {
		p.GoodHref = link(integration, "/rollbacks/new", "snapshot", itoa(good))
	}
	p.Page.LiveURL = link(integration, "/stream/snapshots", "before", itoa(before))
	return c.Render(http.StatusOK, views.Snapshots(p))
}

// snapshotRows reads a page of the timeline. Each row is compared with the one
// before it in time, for which one more is read.
func (r recovery) snapshotRows(ctx context.Context, integration string, before int64, p *views.SnapshotsPage) (good int64, more bool, err error) {
	list, err := r.snapshots.List(ctx, integration, before, listSize+1)
	if err != nil {
		return 0, false, err
	}
	best, reason, err := r.snapshots.LastGood(ctx, integration)
	none := errors.Is(err, gate.ErrNotFound)
	if err != nil && !none {
		return 0, false, err
	}
	if len(list) > 0 {
		p.Why, p.WhyHref, p.WhyLink = lastGoodReason(ctx, integration, best, reason, none)
	}
	if none {
		best.Seq = 0
	}
	for i, s := range list[:min(listSize, len(list))] {
		var older *snapshots.Snapshot
		if i+1 < len(list) {
			older = &list[i+1]
		}
		p.Rows = append(p.Rows, snapshotLine(ctx, s, older, best.Seq))
	}
	return best.Seq, len(list) > listSize, nil
}

func snapshotLine(ctx context.Context, s snapshots.Snapshot, older *snapshots.Snapshot, good int64) views.SnapshotLine {
	l := views.SnapshotLine{
		Name: snapshotName(s.Integration, s.Seq), Seq: s.Seq, Href: link(s.Integration, snapshotPath(s.Seq)), TakenAt: s.TakenAt,
		Entities: i18n.Number(ctx, s.Entities), Size: byteSize(ctx, s.BodySize), Hash: shortHash(s.ManifestHash), LockedUntil: s.RetainUntil,
		VerifiedAt: s.VerifiedAt, Mark: chainMark(ctx, s), Good: s.Seq == good,
		PlanHref: link(s.Integration, "/rollbacks/new", "snapshot", itoa(s.Seq)),
	}
	if older != nil {
		l.Change = change(ctx, s.Entities-older.Entities)
		if s.Seq == older.Seq+1 && s.PrevHash != older.ManifestHash {
			l.Mark = views.Mark{Tone: "crit", Text: i18n.T(ctx, "snapshots.chain.broken")}
		}
	}
	return l
}

// change is a difference with its sign: "+12", "−3", "0".
func change(ctx context.Context, n int64) string {
	switch {
	case n > 0:
		return "+" + i18n.Number(ctx, n)
	case n < 0:
		return "−" + i18n.Number(ctx, -n)
	}
	return "0"
}

// byteSize is a size in KiB with one decimal.
func byteSize(ctx context.Context, n int64) string {
	return i18n.Decimal(ctx, float64(n)/1024, 1) + " KiB"
}

// chainLine says how the chain stands: fresh and whole, or what is wrong with
// it. What cannot be read is no data.
func (r recovery) chainLine(ctx context.Context, c *web.Context, integration string) views.SnapshotChain {
	s, err := r.snapshots.Signal(ctx, integration)
	if err != nil {
		r.failed(ctx, c, "snapshot signal", err)
		return views.SnapshotChain{Mark: views.Mark{Tone: "unk", Text: i18n.T(ctx, "state.unk")}, Text: i18n.T(ctx, "signal.unreadable")}
	}
	tone := levelTones[s.Level]
	chain := views.SnapshotChain{Mark: views.Mark{Tone: tone, Text: i18n.T(ctx, "state."+tone)}, Text: signalWhy(ctx, s)}
	newest, err := r.snapshots.List(ctx, integration, 0, listSize)
	if err != nil {
		r.failed(ctx, c, "newest snapshots", err)
		return chain
	}
	for _, s := range newest {
		if !s.VerifiedAt.IsZero() {
			chain.VerifiedAt = s.VerifiedAt
			break
		}
	}
	return chain
}

// snapshotStream renews the outcome of a verification: the line about the chain
// and, by id, each row's own.
func (r recovery) snapshotStream(c *web.Context) error {
	integration, self := c.Integration(), c.Request().URL.RequestURI()
	before, err := number(c.QueryParam("before"))
	if err != nil {
		return err
	}
	return c.SSE(topics(integration, "snapshots"), func(ctx context.Context, send web.Send) error {
		p := views.SnapshotsPage{Page: views.Page{Now: c.Now, Lang: i18n.Lang(ctx), LiveURL: self}}
		if _, _, err := r.snapshotRows(ctx, integration, before, &p); err != nil {
			return err
		}
		p.Chain = r.chainLine(ctx, c, integration)
		return send("", views.SnapshotsLive(p))
	})
}

func (r recovery) snapshotsCSV(c *web.Context) error {
	ctx, integration := c.Ctx(), c.Integration()
	list, err := r.snapshots.List(ctx, integration, 0, csvPage)
	if err != nil {
		return err
	}
	s, err := startCSV(c, "snapshots-"+integration, c.T("snapshots.snapshot"), c.T("snapshots.taken"), c.T("snapshots.entities"),
		c.T("snapshots.size_bytes"), c.T("snapshots.manifest_hash"), c.T("snapshots.prev_hash"), c.T("snapshots.body_hash"),
		c.T("snapshots.locked"), c.T("snapshots.verified"), c.T("snapshots.chain"), c.T("snapshots.finding"))
	if err != nil {
		return err
	}
	for len(list) > 0 {
		for _, l := range list {
			if err := s.row(snapshotName(integration, l.Seq), s.time(l.TakenAt), strconv.FormatInt(l.Entities, 10),
				strconv.FormatInt(l.BodySize, 10), fullHash(l.ManifestHash), fullHash(l.PrevHash), fullHash(l.BodyHash),
				s.time(l.RetainUntil), s.time(l.VerifiedAt), chainMark(ctx, l).Text, l.VerifyError); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil || len(list) < csvPage {
			return err
		}
		if list, err = r.snapshots.List(ctx, integration, list[len(list)-1].Seq, csvPage); err != nil {
			return err
		}
	}
	return s.flush()
}

func (r recovery) snapshot(c *web.Context) error {
	seq, err := positive(c.Param("seq"))
	if err != nil {
		return err
	}
	ctx, integration := c.Ctx(), c.Integration()
	around, err := r.snapshots.List(ctx, integration, seq+2, 3) // the next one, this one and the one before
	if err != nil {
		return err
	}
	s, err := r.snapshots.Get(ctx, integration, seq)
	if err != nil {
		return err
	}
	p := views.SnapshotPage{
		Page:   c.Page("snapshots.page", "snapshots", "Name", snapshotName(integration, seq)),
		Crumbs: []views.Crumb{{Text: c.T("snapshots.title"), Href: link(integration, "/snapshots")}},
		Name:   snapshotName(integration, seq), Mark: chainMark(ctx, s), Finding: s.VerifyError,
		PlanHref: link(integration, "/rollbacks/new", "snapshot", itoa(seq)),
		Facts:    snapshotFacts(ctx, s), Positions: snapshotPositions(ctx, s), Receipts: snapshotReceipts(ctx, s),
	}
	var older *snapshots.Snapshot
	for i := range around {
		switch around[i].Seq {
		case seq - 1:
			older = &around[i]
			p.Older = link(integration, snapshotPath(seq-1))
		case seq + 1:
			p.Newer = link(integration, snapshotPath(seq+1))
		}
	}
	if older != nil {
		line := snapshotLine(ctx, s, older, 0)
		p.Mark = line.Mark
		p.Facts = append(p.Facts, views.Fact{Name: c.T("snapshots.change"), Text: line.Change})
	}
	return c.Render(http.StatusOK, views.Snapshot(p))
}

func factsOf(ctx context.Context, mono bool, kv ...string) []views.Fact {
	var facts []views.Fact
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i+1] != "" {
			facts = append(facts, views.Fact{Name: i18n.T(ctx, kv[i]), Text: kv[i+1], Mono: mono})
		}
	}
	return facts
}

func snapshotFacts(ctx context.Context, s snapshots.Snapshot) []views.Fact {
	verified := i18n.Time(ctx, s.VerifiedAt)
	if verified == "" {
		verified = i18n.T(ctx, "snapshots.chain.unverified")
	}
	return factsOf(ctx, false, "snapshots.taken", i18n.Time(ctx, s.TakenAt), "snapshots.entities", i18n.Number(ctx, s.Entities),
		"snapshots.size", byteSize(ctx, s.BodySize), "snapshots.verified", verified)
}

func snapshotPositions(ctx context.Context, s snapshots.Snapshot) []views.Fact {
	facts := factsOf(ctx, false, "snapshots.audit_pos", i18n.Number(ctx, s.AuditPos))
	if s.LastMutation > 0 {
		facts = append([]views.Fact{{Name: i18n.T(ctx, "snapshots.last_mutation"), Text: mutationName(s.LastMutation),
			Href: link(s.Integration, mutationPath(s.LastMutation))}}, facts...)
	}
	return append(facts, factsOf(ctx, true, "snapshots.audit_hash", fullHash(s.AuditHash), "snapshots.manifest_hash", fullHash(s.ManifestHash),
		"snapshots.prev_hash", fullHash(s.PrevHash), "snapshots.body_hash", fullHash(s.BodyHash))...)
}

func snapshotReceipts(ctx context.Context, s snapshots.Snapshot) []views.Fact {
	return append(factsOf(ctx, true, "snapshots.manifest_key", s.ManifestKey, "snapshots.body_key", s.BodyKey),
		factsOf(ctx, false, "snapshots.locked", i18n.Time(ctx, s.RetainUntil))...)
}

func (r recovery) takeSnapshot(c *web.Context) error {
	integration := c.Integration()
	s, err := r.snapshots.Take(c.Ctx(), person(c), integration)
	if err != nil {
		return err
	}
	flash := views.Flash{Tone: views.ToneOK, ID: "snapshots.flash.taken", Args: []string{"Name", snapshotName(integration, s.Seq)},
		Href: link(integration, snapshotPath(s.Seq)), LinkText: "item.view"}
	if err := c.Flash(flash); err != nil {
		return err
	}
	return c.Redirect(link(integration, "/snapshots"))
}

func (r recovery) verifySnapshots(c *web.Context) error {
	integration := c.Integration()
	if err := r.snapshots.RequestVerify(c.Ctx(), person(c), integration); err != nil {
		return err
	}
	if err := c.Flash(views.Flash{Tone: views.ToneInfo, ID: "snapshots.flash.verifying"}); err != nil {
		return err
	}
	return c.Redirect(link(integration, "/snapshots"))
}
