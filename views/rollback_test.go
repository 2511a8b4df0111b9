package views_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"sluis/views"
	"sluis/views/i18n"
)

// words is the text of every element that the selector finds.
func words(doc *goquery.Document, selector string) string {
	return strings.Join(strings.Fields(doc.Find(selector).Text()), " ")
}

func rollbackFixture() views.RollbackPage {
	diff := views.NewDiff("visit V-1", []string{"Nu", "Straks"}, json.RawMessage(`{"route":"R-1"}`), nil)
	row := views.RollbackRow{Row: 3, Anchor: "row-3", Name: "visit V-1", Href: "/history/visit/V-1", Diff: diff, Choice: "keep",
		ChoiceHref: "/rollbacks/5/choice", SkipHref: "/rollbacks/5/skip", Version: 2,
		Undoes: []views.Crumb{{Text: "M-313", Href: "/mutations/313"}}, Later: []views.Crumb{{Text: "M-400", Href: "/mutations/400"}}}
	group := views.RollbackGroup{Key: "g", Href: "/rollbacks/5/groups/g", Text: "312 bezoeken", Count: "312", Sample: row}
	return views.RollbackPage{
		Heading: "R-5", Totals: []string{"312 bezoeken bij 88 cliënten verwijderen"}, TotalsTitle: "Na akkoord",
		Status: views.RollbackStatus{State: "applying", Step: "Versturen", Done: 108, Total: 312,
			Counts: []views.StateCount{{Mark: views.Mark{Tone: "ok", Text: "uitgevoerd"}, Count: "108"}}},
		Groups: []views.RollbackGroup{group}, Outside: []views.RollbackGroup{group}, Residue: []views.RollbackGroup{group},
		Decide: []views.RollbackRow{row}, Failed: []views.RollbackRow{row},
		Approve: views.ApproveForm{Show: true, Action: "/rollbacks/5/approve", Version: 2, Hash: "abcd", Button: "Akkoord", PlannedAt: now.Add(-4 * time.Minute),
			ExpiresAt: now.Add(26 * time.Minute)},
		Actions: views.RollbackActions{Cancel: "/rollbacks/5/cancel", Resume: "/rollbacks/5/resume", Replan: "/rollbacks/5/replan", Version: 2},
		Moved:   []views.MovedRow{{Name: "visit V-1", By: "els", At: now, Diff: diff}}, MovedWhy: "verschoven",
	}
}

func TestRollbackInDutch(t *testing.T) {
	doc := render(t, "nl", views.Rollback(rollbackFixture()))
	for selector, want := range map[string]string{
		"#rollback-status .mut": "108 van 312",
		".row-states":           "108 ● uitgevoerd",
		"#approve .mut":         "Proefgedraaid 4 min geleden · verloopt over 26 min",
		"#row-3 button[value=keep][aria-pressed=true]": "Laten staanLaten staan", // as a decision, and as what failed
		"#decisions":               "Door iemand anders gewijzigd: u kiest",
		"#skip-3 label":            "Waarom overslaan? (verplicht)",
		"#moved article > p":       "Gewijzigd door els op 2025-10-26 06:40:12 +01:00",
		"#g p a[href*='/groups/']": strings.Repeat("Toon alle 312", 3),
	} {
		if got := words(doc, selector); got != want {
			t.Errorf("%s = %q, want %q", selector, got, want)
		}
	}
	progress := doc.Find("progress")
	if progress.AttrOr("value", "") != "108" || progress.AttrOr("max", "") != "312" || doc.Find("label[for=rollback-progress]").Length() != 1 {
		t.Error("the bar does not say how far it is")
	}
	if n := doc.Find("#approve input[type=hidden]").Length(); n != 2 {
		t.Errorf("%d hidden fields bind the approval", n)
	}
}

func TestRollbackLiveHoldsNoFormUntilTheStateChanges(t *testing.T) {
	u := views.RollbackUpdate{Status: rollbackFixture().Status}
	if doc := render(t, "en", views.RollbackLive(u)); doc.Find("form").Length() != 0 || doc.Find("#rollback-status").Length() != 1 {
		t.Error("the status is not alone")
	}
	body := rollbackFixture()
	u.Body, u.Banners = &body, []views.Banner{{Tone: views.ToneOK, Text: "R-5"}}
	if doc := render(t, "en", views.RollbackLive(u)); doc.Find("#approve").Length() != 1 || words(doc, "#notices") != "● R-5" {
		t.Error("the body or the notices are missing")
	}
}

func TestRecoveryListsInBothLanguages(t *testing.T) {
	for _, lang := range i18n.Languages {
		render(t, lang, views.Rollbacks(views.RollbacksPage{Rows: []views.RollbackLine{{Name: "R-5", Note: "n"}, {Name: "R-4", Effect: "2"}}}))
		render(t, lang, views.RollbackNew(views.RollbackNewPage{Snapshot: views.SnapshotChoice{Name: "S-care-21", Seq: 21}, Conflict: "c", Error: "e", Earlier: "e",
			Choices:  []views.SnapshotChoice{{Name: "S-care-21", Chosen: true, Good: true}, {Name: "S-care-20", Broken: true}},
			Suspects: []views.SuspectRow{{Name: "M-1", Pair: "P-1", Twin: "M-2", EntityHref: "/x"}}, Undecided: []views.PairRow{{Name: "P-9"}}}))
		render(t, lang, views.Snapshots(views.SnapshotsPage{Why: "w", GoodHref: "/x", Chain: views.SnapshotChain{VerifiedAt: now},
			Rows: []views.SnapshotLine{{Name: "S-care-21", Good: true, VerifiedAt: now}}}))
		render(t, lang, views.SnapshotsLive(views.SnapshotsPage{Rows: []views.SnapshotLine{{Name: "S-care-21"}}}))
		render(t, lang, views.Snapshot(views.SnapshotPage{Name: "S-care-21", Finding: "f", Older: "/x", Newer: "/y"}))
		render(t, lang, views.RollbackGroupRows(views.RollbackGroupPage{Group: rollbackFixture().Groups[0], Rows: rollbackFixture().Decide}))
		render(t, lang, views.Integrations(views.IntegrationsPage{Conflict: "c", List: []views.IntegrationView{
			{ID: "care", Frozen: true, ModeError: "e", FreezeError: "e", Modes: []views.ModeChoice{{Value: "off", Current: true}}}, {ID: "other"}}}))
	}
}
