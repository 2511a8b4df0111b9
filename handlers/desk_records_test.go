package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/web"
	"sluis/web/webtest"
)

func TestInFlight(t *testing.T) {
	unknown := mutationOf(12, "E-1", gate.OpCreate, "", `{"nurse":"A"}`)
	unknown.State, unknown.Version, unknown.ReservedAt = gate.Unknown, 4, webtest.Start.Add(-11*time.Minute)
	flying := mutationOf(13, "E-3", gate.OpUpdate, "V-2", `{}`)
	flying.State, flying.ReservedAt = gate.InFlight, webtest.Start.Add(-3*time.Minute)
	fake := &fakeDesk{open: []gate.MutationRecord{unknown, flying}, mutations: []gate.MutationRecord{mutationOf(14, "E-4", gate.OpCreate, "V-3", `{}`)}}
	console := deskConsole(t, fake)
	oncall := console.As(t, web.OnCall)
	page := oncall.Get("/in-flight")
	if got := page.Text("#M-12 .st"); got != "▲ Outcome unknown" {
		t.Errorf("state %q", got)
	}
	if got := page.Text("#M-13"); !strings.Contains(got, "Looked up at the record system each minute") || strings.Contains(got, "Settle by hand") {
		t.Errorf("row in flight %q", got)
	}
	if got := oncall.Get("/in-flight?state=unknown").Doc.Find("tbody tr").Length(); got != 1 {
		t.Errorf("%d unknown rows", got)
	}
	cases := []struct {
		name   string
		path   string
		form   url.Values
		status int
		inPage string
	}{
		{"no choice", "12", url.Values{"version": {"4"}, "note": {"seen"}}, 422, "Say whether it was applied or is absent."},
		{"no note", "12", url.Values{"version": {"4"}, "applied": {"no"}}, 422, "Write a note"},
		{"stale", "12", url.Values{"version": {"3"}, "applied": {"no"}, "note": {"looked"}}, 409, "This has changed since you saw it."},
		{"settled", "14", url.Values{"version": {"1"}, "applied": {"no"}, "note": {"looked"}}, 409, "already decided: Applied by reconcile"},
	}
	for _, c := range cases {
		got := oncall.Post("/in-flight/"+c.path+"/settle", c.form)
		if got.Status != c.status || !strings.Contains(got.Body, c.inPage) {
			t.Errorf("%s: %d", c.name, got.Status)
		}
		if want := c.form.Get("note"); want != "" && !strings.Contains(got.Text("textarea"), want) {
			t.Errorf("%s: the note is lost: %q", c.name, got.Text("textarea"))
		}
	}
	got := oncall.Post("/in-flight/12/settle?i=care", url.Values{"version": {"4"}, "applied": {"yes"}, "ref": {"V-77"}, "note": {"seen in the record"}})
	if got.Status != http.StatusSeeOther || len(fake.settled) != 1 || fake.settled[0] != "12 true V-77 seen in the record" {
		t.Errorf("settle: %d %v", got.Status, fake.settled)
	}
}

func pairOf(id int64) gate.Pair {
	first, second := mutationOf(10*id, "E-1", gate.OpCreate, "", `{"start":"09:00"}`), mutationOf(10*id+1, "E-2", gate.OpCreate, "", `{"start":"09:00"}`)
	first.ExternalRef, second.ExternalRef = "V-1", "V-2"
	second.ReceivedAt = first.ReceivedAt.Add(26 * time.Minute)
	return gate.Pair{ID: id, Integration: "care", Subject: "C-12", State: gate.PairOpen, Version: 1, First: first, Second: second, FirstTouched: 1}
}

func TestPairs(t *testing.T) {
	fake := &fakeDesk{pairs: []gate.Pair{pairOf(5), pairOf(4)},
		records: []audit.Record{{ID: 1, Action: "pairs.scanned", Detail: json.RawMessage(`{"found":2}`)}}}
	console := deskConsole(t, fake)
	planner := console.As(t, web.Planner)
	page := planner.Get("/pairs")
	if got := page.Text("#last-scan"); got != "Last scan: 1 h ago · 2 new pairs found" {
		t.Errorf("last scan %q", got)
	}
	if got := page.Text(".banner.warn"); got != "◆ 2 pairs are open or doubled. Plan a rollback for these" {
		t.Errorf("plan %q", got)
	}
	page = planner.Get("/pairs/5")
	if page.Doc.Find(".cols section").Length() != 2 || page.Text(".empty") != "No field differs." {
		t.Errorf("side by side: %q", page.Text(".cols"))
	}
	if got := page.Text(".cols section:first-child .mut"); got != "1 later change touched it." {
		t.Errorf("touched %q", got)
	}
	judge := func(version, verdict, text string) url.Values {
		return url.Values{"version": {version}, "verdict": {verdict}, "note": {text}}
	}
	if got := planner.Post("/pairs/5/verdict", judge("0", "duplicate", "kept")); got.Status != http.StatusConflict || got.Text("#note") != "kept" {
		t.Errorf("stale: %d %q", got.Status, got.Text("#note"))
	}
	for range 2 {
		got := planner.Post("/pairs/5/verdict?i=care", judge("1", "duplicate", "the repeated hour"))
		if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/pairs/4?i=care" {
			t.Errorf("verdict: %d %s", got.Status, got.Header.Get("Location"))
		}
	}
	lost := console.As(t, web.OnCall).Post("/pairs/5/verdict", judge("1", "distinct", "both right"))
	if lost.Status != http.StatusConflict || lost.Text("#note") != "both right" || !strings.Contains(lost.Text("#conflict"), "Same intent twice by planner") {
		t.Errorf("lost: %d %q", lost.Status, lost.Text("#conflict"))
	}
	if got := planner.Post("/pairs/scan?i=care", nil); got.Status != http.StatusSeeOther || fake.scans != 1 {
		t.Errorf("scan: %d", got.Status)
	}
	if got := planner.Post("/pairs/5/verdict", judge("1", "maybe", "x")); got.Status != http.StatusBadRequest {
		t.Errorf("another verdict: %d", got.Status)
	}
}

func TestHistory(t *testing.T) {
	created := mutationOf(1, "E-1", gate.OpCreate, "V-1", `{"nurse":"A","start":"09:00"}`)
	moved := mutationOf(2, "E-2", gate.OpUpdate, "V-1", `{"start":"10:00"}`)
	dropped := mutationOf(3, "E-2", gate.OpUpdate, "V-1", `{"start":"11:00"}`)
	dropped.Verdict, dropped.Reason, dropped.Forwarded, dropped.State = gate.Drop, gate.ReasonReplay, false, ""
	undone := mutationOf(4, "", gate.OpDelete, "V-1", `{}`)
	undone.RollbackID = 7
	fake := &fakeDesk{
		mutations: []gate.MutationRecord{created, moved, dropped, undone},
		entities:  []gate.Projected{{Type: "visit", ID: "V-1", Version: 3, Deleted: true, Subject: "C-12", State: json.RawMessage(`{"nurse":"A","start":"10:00"}`)}},
	}
	console := deskConsole(t, fake)
	viewer := console.As(t, web.Viewer)
	if got := viewer.Get("/history").Text(".empty"); got != "Search for a record by its id, or for whom it concerns." {
		t.Errorf("no search %q", got)
	}
	if got := viewer.Get("/history?q=nobody").Text(".empty"); got != "No record is found by this. Show all" {
		t.Errorf("nothing found %q", got)
	}
	page := viewer.Get("/history?q=C-12")
	if href, _ := page.Doc.Find("tbody a").Attr("href"); href != "/history/visit/V-1?i=care" {
		t.Errorf("entity link %q", href)
	}
	page = viewer.Get("/history/visit/V-1?i=care")
	steps := map[string]string{}
	for _, s := range page.Doc.Find("article[data-row]").EachIter() {
		id, _ := s.Attr("id")
		steps[id] = cells(s.Find("tbody").First())
	}
	want := map[string]string{"M-1": "nurse none + A start none + 09:00", "M-2": "start 09:00 ≠ 10:00", "M-3": "",
		"M-4": "nurse A − none start 10:00 − none"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if got := page.Text("#M-4"); !strings.Contains(got, "correction of R-7") {
		t.Errorf("compensation %q", got)
	}
	if got := viewer.Get("/history/visit/V-9"); got.Status != http.StatusNotFound {
		t.Errorf("unknown entity: %d", got.Status)
	}
	if got := viewer.Get("/mutations/3"); got.Text("main > p .st") != "▲ Dropped" {
		t.Errorf("dropped mutation: %d %q", got.Status, got.Text("main > p .st"))
	}
}

func TestEventPages(t *testing.T) {
	ref := gate.EventRef{Account: "roster/nl", ID: "E 1"}
	first := mutationOf(1, "", gate.OpCreate, "V-1", `{}`)
	again := mutationOf(2, "", gate.OpCreate, "V-1", `{}`)
	first.Event, again.Event = ref, ref
	again.Verdict, again.Reason, again.Forwarded, again.State = gate.Drop, gate.ReasonReplay, false, ""
	fake := &fakeDesk{mutations: []gate.MutationRecord{first, again},
		drops: []gate.DropGroup{{Account: ref.Account, EventID: ref.ID, Reason: gate.ReasonReplay, Mode: gate.ModeEnforce, Enforced: true,
			Deliveries: 1, Mutations: 312, LastID: 900}},
		deliveries: []gate.DeliveryRecord{
			{ID: 1, Event: ref, Payload: []byte(`{"n":1}`), Disposition: gate.Stored, Mode: gate.ModeEnforce, HandedOn: true},
			{ID: 2, Event: ref, Payload: []byte(`{"n":2}`), Disposition: gate.Duplicate, Mode: gate.ModeEnforce, Reason: gate.ReasonReplay},
		}}
	console := deskConsole(t, fake)
	viewer := console.As(t, web.Viewer)
	list := viewer.Get("/drops?i=care")
	if list.Doc.Find("#drop-900").Length() != 1 || !strings.Contains(list.Text("#drop-900"), "1 delivery, 312 mutations") {
		t.Errorf("drops %q", list.Text("#drop-900"))
	}
	href, _ := list.Doc.Find("#drop-900 a").Attr("href")
	if href != "/drops/roster%2Fnl/E%201?i=care" {
		t.Fatalf("detail at %q", href)
	}
	page := viewer.Get(href)
	if page.Status != http.StatusOK || page.Doc.Find("article.panel").Length() != 2 || page.Doc.Find("tbody tr").Length() != 2 {
		t.Fatalf("%d: %d deliveries, %d mutations", page.Status, page.Doc.Find("article.panel").Length(), page.Doc.Find("tbody tr").Length())
	}
	if got := page.Text("article.panel:nth-of-type(2)"); !strings.Contains(got, "≠ differs from the first") || !strings.Contains(got, "▲ Duplicate") {
		t.Errorf("second delivery %q", got)
	}
	if got := viewer.Get("/events/roster%2Fnl/E%209"); got.Status != http.StatusNotFound {
		t.Errorf("unknown event: %d", got.Status)
	}
}

func TestAudit(t *testing.T) {
	fake := &fakeDesk{records: []audit.Record{
		{ID: 9, At: webtest.Start, ActorKind: "person", Actor: "anna", Integration: "care", Action: "item.rejected", Object: "Q-17", Detail: json.RawMessage(`{"note":"=1+1"}`)},
		{ID: 8, Pos: 2, Hash: [32]byte{0xde, 0xad, 0xbe, 0xef}, At: webtest.Start.Add(-48 * time.Hour), ActorKind: "agent", Actor: "planner-agent",
			Integration: "care", Action: "mutation.dropped", Object: "M-3", Detail: json.RawMessage(`{"reason":"replay"}`)},
	}}
	console := deskConsole(t, fake)
	viewer := console.As(t, web.Viewer)
	page := viewer.Get("/audit")
	if got := page.Text("#audit-8 td.mono"); got != "deadbeef" {
		t.Errorf("hash %q", got)
	}
	if got := page.Text("#audit-9 time"); got != "2025-10-26 02:13:00 +01:00" {
		t.Errorf("time %q", got)
	}
	if href, _ := page.Doc.Find("#audit-9 td a").Attr("href"); href != "/quarantine/17?i=care" {
		t.Errorf("object %q", href)
	}
	page = viewer.Get("/audit?from=2025-10-26&to=2025-10-26")
	if got := page.Doc.Find("tbody tr").Length(); got != 1 {
		t.Errorf("a day holds %d records", got)
	}
	if got := viewer.Get("/audit?from=2025-10-26+02:30"); got.Status != http.StatusUnprocessableEntity || !strings.Contains(got.Text(".empty"), "in the repeated hour") {
		t.Errorf("time without an offset: %d", got.Status)
	}
	if got := viewer.Get("/audit?actor=nobody").Text(".empty"); got != "No record answers to this filter. Show all" {
		t.Errorf("filtered empty %q", got)
	}
	if got := viewer.Get("/audit?verify=1").Text("#chain [role=status]"); !strings.HasPrefix(got, "● Chain verified to position 2") {
		t.Errorf("verified %q", got)
	}
	fake.broken = &audit.BrokenError{Pos: 2, What: "changed"}
	if got := viewer.Get("/audit?verify=1").Text("#chain [role=status]"); got != "▲ The chain does not hold at position 2" {
		t.Errorf("broken %q", got)
	}
	csv := viewer.Get("/audit.csv?actor=anna").Body
	if want := `9;;;2025-10-26 02:13:00 +01:00;person;anna;care;item.rejected;Q-17;"{""note"":""=1+1""}"`; !strings.Contains(csv, want) || strings.Contains(csv, "M-3") {
		t.Errorf("csv %q", csv)
	}
	if got := viewer.Get("/audit/8"); got.Status != http.StatusOK || !strings.Contains(got.Text("main"), "deadbeef0000") {
		t.Errorf("record: %d", got.Status)
	}
	if got := viewer.Get("/audit/7"); got.Status != http.StatusNotFound {
		t.Errorf("unknown record: %d", got.Status)
	}
}
