package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/handlers"
	"sluis/migrations/testdb"
	"sluis/snapshots"
	"sluis/web"
	"sluis/web/webtest"
)

var (
	_ handlers.DeskGate       = (*gate.Gate)(nil)
	_ handlers.SnapshotSignal = (*snapshots.Service)(nil)
	_ handlers.AuditReader    = audit.Reader{}
)

func TestDeskMatrix(t *testing.T) {
	webtest.Matrix(t, testdb.Pool(t), handlers.Desk(handlers.DeskDeps{}))
}

// cells is the text of the cells below s, one after the other.
func cells(s *goquery.Selection) string {
	var texts []string
	for _, cell := range s.Find("th, td").EachIter() {
		texts = append(texts, strings.Fields(cell.Text())...)
	}
	return strings.Join(texts, " ")
}

func note(version, text string) url.Values {
	return url.Values{"version": {version}, "note": {text}}
}

func TestDashboard(t *testing.T) {
	fake := &fakeDesk{items: []gate.Item{heldItem(17)}}
	console := deskConsole(t, fake)
	now := console.Now()
	fake.signals = []gate.Signal{
		{ID: gate.SignalReplay, Level: gate.LevelOK, Why: "in_band", Ratio: 0.021, CheckedAt: now},
		{ID: gate.SignalQuarantine, Level: gate.LevelCheck, Why: "open", Count: 1, Age: time.Hour, CheckedAt: now,
			WhyArgs: map[string]any{"capped": false}},
		{ID: gate.SignalPairs, Level: gate.LevelOK, Why: "none", CheckedAt: now.Add(-time.Hour)},
		{ID: gate.SignalDrops, Level: gate.LevelAct, Why: "above_zero", Count: 1, UpTo: 99, CheckedAt: now,
			WhyArgs: map[string]any{"mutations": int64(312), "deliveries": int64(1), "capped": false}},
	}
	page := console.As(t, web.Planner).Get("/")
	if page.Status != http.StatusOK {
		t.Fatal(page.Status, page.Body)
	}
	var rows []string
	for _, tr := range page.Doc.Find("tr[id^=signal-]").EachIter() {
		id, _ := tr.Attr("id")
		rows = append(rows, strings.TrimPrefix(id, "signal-")+" "+strings.Join(strings.Fields(tr.Find(".st").Text()), " ")+" "+strings.TrimSpace(tr.Find("td.num").Text()))
	}
	// The pairs' figure is an hour old; three signals are missing altogether.
	want := []string{"drops ▲ Act now 1", "quarantine ◆ Check 1", "in_flight ? No data no data", "hash_pairs ? No data no data",
		"clock ? No data no data", "replay_ratio ● In range 2.1 %", "snapshot ● In range 00:04:00"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
	if got := page.Text("#signal-drops"); !strings.Contains(got, "312 mutations and 1 deliveries dropped") || !strings.Contains(got, "Review 1") {
		t.Errorf("drops row: %q", got)
	}
	if got := page.Text("#dashboard-summary"); got != "▲ 1 to act on now, ◆ 1 to check, ? 3 without data" {
		t.Errorf("summary %q", got)
	}
	if got, _ := page.Doc.Find("#acknowledge input[name=upto]").Attr("value"); got != "99" {
		t.Errorf("upto %q", got)
	}
	if got := page.Text("#dashboard-items tbody th"); got != "Q-17" {
		t.Errorf("open quarantine %q", got)
	}
	if got := page.Text("#dashboard-drops .empty"); got != "Nothing has been dropped." {
		t.Errorf("no drops %q", got)
	}
}

func TestDashboardStandsWhenSignalsFail(t *testing.T) {
	fake := &fakeDesk{signalErr: errDown}
	page := deskConsole(t, fake).As(t, web.Viewer).Get("/")
	if got := page.Doc.Find("tr[id^=signal-].nodata").Length(); page.Status != http.StatusOK || got != 6 {
		t.Errorf("status %d, %d rows without data", page.Status, got)
	}
	if strings.Contains(page.Body, errDown.Error()) {
		t.Error("the cause is shown to the person")
	}
}

func TestAcknowledge(t *testing.T) {
	fake := &fakeDesk{}
	console := deskConsole(t, fake)
	got := console.As(t, web.OnCall).Post("/signals/drops/acknowledge?i=care", url.Values{"upto": {"99"}})
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/?i=care" || len(fake.acked) != 1 || fake.acked[0] != 99 {
		t.Errorf("%d %s %v", got.Status, got.Header.Get("Location"), fake.acked)
	}
	if got := console.As(t, web.OnCall).Post("/signals/clock/acknowledge", url.Values{"upto": {"1"}}); got.Status != http.StatusNotFound {
		t.Errorf("another signal: %d", got.Status)
	}
	if got := console.As(t, web.Viewer).Post("/signals/drops/acknowledge", url.Values{"upto": {"99"}}); got.Status != http.StatusForbidden {
		t.Errorf("viewer: %d", got.Status)
	}
}

func TestItemPage(t *testing.T) {
	fake := &fakeDesk{items: []gate.Item{heldItem(18), heldItem(17), heldItem(16)},
		deliveries: []gate.DeliveryRecord{{Event: gate.EventRef{Account: "roster", ID: "E-2"}, Payload: []byte(`{"swap":true}`)}},
		records:    []audit.Record{{ID: 5, Pos: 2, At: webtest.Start, Actor: "planner-agent", Action: "mutation.held", Object: "Q-17"}}}
	console := deskConsole(t, fake)
	page := console.As(t, web.Planner).Get("/quarantine/17")
	for selector, want := range map[string]string{
		"h1":                                  "Q-17 · change visit V-1 for C-12",
		"#position":                           "2 of 3",
		"section[aria-labelledby=why] strong": "Same key, other content",
		"section[aria-labelledby=why] pre":    `{ "swap": true }`,
		"section[aria-labelledby=twin] a":     "M-100",
		".timeline li strong":                 "planner-agent",
		"button.primary":                      "Release r",
		"button.danger":                       "Reject x",
	} {
		if got := page.Text(selector); got != want {
			t.Errorf("%s = %q, want %q", selector, got, want)
		}
	}
	var changed []string
	for _, tr := range page.Doc.Find("section[aria-labelledby=diff] > .scroll tbody tr").EachIter() {
		changed = append(changed, cells(tr))
	}
	if diff := cmp.Diff([]string{"note none + sleutel bij de buren − none", "route R-118 ≠ R-121 ≠ R-118"}, changed); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if got := page.Text("details.equal summary"); got != "show 1 equal field" {
		t.Errorf("equal: %q", got)
	}
	if got, _ := page.Doc.Find("#stream").Attr("hx-sse:connect"); got != "/stream/quarantine?i=care&item=17" {
		t.Errorf("stream %q", got)
	}

	viewer := console.As(t, web.Viewer)
	page = viewer.Get("/quarantine/17")
	if page.Doc.Find("#decide button:not([disabled])").Length() != 0 || page.Text("#decide-why") != "Your role (Viewer) may look, not decide." {
		t.Errorf("a viewer's buttons: %q", page.Text("#decide-why"))
	}
	if got := viewer.Post("/quarantine/17/release", note("3", "yes")); got.Status != http.StatusForbidden || fake.at(17).State != gate.ItemOpen {
		t.Errorf("a viewer's release: %d", got.Status)
	}
	if got := viewer.Get("/quarantine/999"); got.Status != http.StatusNotFound {
		t.Errorf("unknown item: %d", got.Status)
	}
}

func TestReleaseOpensTheNextItem(t *testing.T) {
	fake := &fakeDesk{items: []gate.Item{heldItem(18), heldItem(17)}}
	console := deskConsole(t, fake)
	planner := console.As(t, web.Planner)
	for range 2 { // the second click finds the first one's decision
		got := planner.Post("/quarantine/17/release?i=care", note("3", " meant so "))
		if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/quarantine/18?after=17&i=care" {
			t.Fatalf("%d %s", got.Status, got.Header.Get("Location"))
		}
	}
	if i := fake.at(17); i.State != gate.ItemReleasing || i.Note != "meant so" || i.DecidedBy != "planner" {
		t.Errorf("item %+v", i)
	}
	page := planner.Get("/quarantine/18?after=17&i=care")
	if got := page.Text("#decided-17"); !strings.Contains(got, "Releasing") || page.Doc.Find("#decided-17 [data-until]").Length() != 1 {
		t.Errorf("line of the decided item: %q", got)
	}
	if action, _ := page.Doc.Find("#decided-17 form").Attr("action"); action != "/quarantine/17/undo?i=care" {
		t.Errorf("undo %q", action)
	}
	if got := planner.Post("/quarantine/17/undo?i=care", note("4", "")); got.Status != http.StatusSeeOther || fake.at(17).State != gate.ItemOpen {
		t.Errorf("undo: %d", got.Status)
	}
	fake.at(17).State, fake.at(17).ReleasedAs = gate.ItemReleased, 300
	page = planner.Get("/quarantine/17")
	if got := page.Text("#status-17"); !strings.Contains(got, "only a compensation is possible") || !strings.Contains(got, "sent as M-300") {
		t.Errorf("released: %q", got)
	}
	if page.Doc.Find("#decide").Length() != 0 {
		t.Error("a released item can be decided")
	}
	if got := planner.Post("/quarantine/17/undo", note("5", "")); got.Status != http.StatusConflict || !strings.HasPrefix(got.Text("#conflict"), "▲ Too late to undo.") {
		t.Errorf("late undo: %d %q", got.Status, got.Text("#conflict"))
	}
	got := planner.Post("/quarantine/18/reject?i=care", note("3", "no"))
	if got.Header.Get("Location") != "/quarantine?after=18&i=care" {
		t.Errorf("after the last item: %s", got.Header.Get("Location"))
	}
}

func TestLostRaceKeepsTheNote(t *testing.T) {
	fake := &fakeDesk{items: []gate.Item{heldItem(17)}}
	console := deskConsole(t, fake)
	planner := console.As(t, web.Planner)
	if got := planner.Post("/quarantine/17/reject", note("3", "  ")); got.Status != http.StatusUnprocessableEntity || got.Text("#note-error") == "" {
		t.Errorf("without a note: %d", got.Status)
	}
	stale := planner.Post("/quarantine/17/reject", note("2", "my reasons"))
	if stale.Status != http.StatusConflict || stale.Text("#note") != "my reasons" || stale.Text("#conflict") == "" {
		t.Errorf("stale: %d %q", stale.Status, stale.Text("#note"))
	}
	if v, _ := stale.Doc.Find("#decide input[name=version]").Attr("value"); v != "3" {
		t.Errorf("the form holds version %s, not the new one", v)
	}
	if got := console.As(t, web.OnCall).Post("/quarantine/17/reject", note("3", "first")); got.Status != http.StatusSeeOther {
		t.Fatal(got.Status)
	}
	lost := planner.Post("/quarantine/17/release", note("3", "my reasons"))
	if lost.Status != http.StatusConflict || lost.Text("#note") != "my reasons" {
		t.Errorf("lost: %d %q", lost.Status, lost.Text("#note"))
	}
	if got := lost.Text("#conflict"); got != "▲ Q-17 was already decided: Rejected by oncall at 2025-10-26 02:13:00 +01:00. Your decision was not carried out." {
		t.Errorf("conflict %q", got)
	}
	if fake.at(17).Note != "first" {
		t.Error("the later decision was carried out")
	}
}

func TestQuarantineList(t *testing.T) {
	rejected := heldItem(16)
	rejected.State, rejected.DecidedBy, rejected.Reason = gate.ItemRejected, "anna", gate.ReasonSkew
	fake := &fakeDesk{items: []gate.Item{heldItem(18), heldItem(17), rejected}}
	console := deskConsole(t, fake)
	planner := console.As(t, web.Planner)
	page := planner.Get("/quarantine")
	if got := page.Doc.Find("tbody tr[data-row]").Length(); got != 2 {
		t.Errorf("%d rows", got)
	}
	if got, _ := page.Doc.Find("#stream").Attr("hx-sse:connect"); got != "/stream/quarantine?cutoff=18&i=care&ids=18%2C17" {
		t.Errorf("stream %q", got)
	}
	fake.filters = nil
	page = planner.Get("/quarantine?state=all&reason=skew&q=C-12&i=care")
	want := gate.ItemFilter{Integration: "care", Reason: gate.ReasonSkew, Search: "C-12", Limit: 50}
	if diff := cmp.Diff(want, fake.filters[0]); diff != "" {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
	if got := page.Text("#Q-16-state"); got != "● Rejected by anna view" {
		t.Errorf("state cell %q", got)
	}
	if got, _ := page.Doc.Find(".filters input[name=q]").Attr("value"); got != "C-12" {
		t.Errorf("search field %q", got)
	}
	page = planner.Get("/quarantine?q=nobody")
	if got := page.Text(".empty"); got != "No item answers to this filter. Show all" {
		t.Errorf("filtered empty %q", got)
	}
	fake.items = nil
	if got := planner.Get("/quarantine").Text(".empty"); got != "Nothing waits for a decision." {
		t.Errorf("empty %q", got)
	}
}

func TestBulk(t *testing.T) {
	fake := &fakeDesk{items: []gate.Item{heldItem(19), heldItem(18), heldItem(17), heldItem(16)}}
	console := deskConsole(t, fake)
	planner := console.As(t, web.Planner)
	form := url.Values{"action": {"reject"}, "note": {"night run"}, "item": {"17:3", "16:2"}, "cutoff": {"18"}}
	page := planner.Post("/quarantine/bulk?i=care", form)
	var results []string
	for _, tr := range page.Doc.Find("tbody tr").EachIter() {
		results = append(results, strings.Join(strings.Fields(tr.Find("th").Text()+" "+tr.Find(".st").Text()), " "))
	}
	if diff := cmp.Diff([]string{"Q-17 ● Rejected", "Q-16 ◆ Skipped"}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	page = planner.Post("/quarantine/bulk?i=care", url.Values{"action": {"release"}, "note": {"all"}, "all": {"1"}, "cutoff": {"18"}})
	if got := page.Text("main [role=status]"); got != "2 decided. 1 new, not included." {
		t.Errorf("all that match: %q", got)
	}
	if fake.at(19).State != gate.ItemOpen {
		t.Error("what came after the cutoff was decided")
	}
	page = planner.Post("/quarantine/bulk?i=care", url.Values{"action": {"release"}, "note": {"kept"}, "cutoff": {"18"}})
	if page.Status != http.StatusUnprocessableEntity || page.Text("#bulk-error") != "Nothing was chosen." || page.Text("#bulk-note") != "kept" {
		t.Errorf("nothing chosen: %d %q", page.Status, page.Text("#bulk-error"))
	}
}

func TestQuarantineCSV(t *testing.T) {
	bad := heldItem(17)
	bad.Subject, bad.Note = "=HYPERLINK(1)", "semi;colon"
	console := deskConsole(t, &fakeDesk{items: []gate.Item{bad}})
	got := console.As(t, web.Viewer).Get("/quarantine.csv?i=care")
	if ct := got.Header.Get("Content-Type"); ct != "text/csv; charset=utf-8" {
		t.Errorf("type %q", ct)
	}
	lines := strings.Split(got.Body, "\r\n")
	if !strings.HasPrefix(lines[0], "\ufeffItem;State;Reason") {
		t.Errorf("heads %q", lines[0])
	}
	want := `Q-17;Open;Same key, other content;change visit V-1 for C-12;'=HYPERLINK(1);roster;E-2;2025-10-26 01:13:00 +02:00;;;"semi;colon"`
	if want = strings.Replace(want, "01:13:00 +02:00", "02:13:00 +02:00", 1); lines[1] != want {
		t.Errorf("row\n%q, want\n%q", lines[1], want)
	}
}

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

// Every page says what it says in both languages: no message is missing and
// none lacks a placeholder.
func TestDeskSpeaksBothLanguages(t *testing.T) {
	released, rejected := heldItem(16), heldItem(15)
	released.State, released.DecidedBy, released.DecidedAt, released.ReleasedAs, released.Outcome = gate.ItemReleased, "anna", webtest.Start, 300, "201"
	rejected.State, rejected.DecidedBy, rejected.DecidedAt = gate.ItemRejected, "anna", webtest.Start
	unknown := mutationOf(12, "E-1", gate.OpCreate, "", `{}`)
	unknown.State = gate.Unknown
	fake := &fakeDesk{
		items: []gate.Item{heldItem(17), released, rejected}, pairs: []gate.Pair{pairOf(4)}, open: []gate.MutationRecord{unknown},
		mutations:  []gate.MutationRecord{mutationOf(1, "E-1", gate.OpUpdate, "V-1", `{"a":1}`)},
		deliveries: []gate.DeliveryRecord{{Event: gate.EventRef{Account: "roster", ID: "E-1"}, Payload: []byte("\xff"), Disposition: gate.Quarantined, Reason: gate.ReasonSkew}},
		drops:      []gate.DropGroup{{Account: "roster", EventID: "E-1", Reason: gate.ReasonReplay, Mode: gate.ModeShadow, Mutations: 1}},
		entities:   []gate.Projected{{Type: "visit", ID: "V-1", Version: 3, Subject: "C-12"}},
		records:    []audit.Record{{ID: 9, At: webtest.Start, ActorKind: "job", Action: "item.rejected", Object: "Q-17"}},
	}
	console := deskConsole(t, fake)
	fake.signals = everySignal(console.Now())
	pages := []string{"/", "/drops", "/drops/roster/E-1", "/events/roster/E-1", "/quarantine", "/quarantine?state=all", "/quarantine?q=x", "/quarantine/17",
		"/quarantine/16?after=15", "/quarantine/15", "/in-flight", "/in-flight?q=x", "/pairs", "/pairs?state=undone", "/pairs/4", "/history", "/history?q=C-12",
		"/history?q=x", "/history/visit/V-1", "/mutations/1", "/audit?verify=1", "/audit?actor=x", "/audit/9", "/audit?from=x"}
	planner := console.As(t, web.Planner)
	for _, lang := range []string{"en", "nl"} {
		for _, path := range pages {
			got := planner.Do(http.MethodGet, path, nil, http.Header{"Accept-Language": {lang}})
			if got.Status >= 500 || strings.Contains(got.Body, "⟦") || strings.Contains(got.Body, "&lt;no value&gt;") || strings.Contains(got.Body, "<no value>") {
				t.Errorf("%s in %s: %d, %q", path, lang, got.Status, missing(got.Body))
			}
			if html, _ := got.Doc.Find("html").Attr("lang"); html != lang {
				t.Errorf("%s is in %q, not %q", path, html, lang)
			}
			ids := map[string]bool{}
			for _, e := range got.Doc.Find("[id]").EachIter() {
				id, _ := e.Attr("id")
				if ids[id] {
					t.Errorf("%s: id %s is used twice", path, id)
				}
				ids[id] = true
			}
		}
	}
	for _, s := range everySignal(console.Now()) {
		fake.signals = []gate.Signal{s}
		for _, lang := range []string{"en", "nl"} {
			got := planner.Do(http.MethodGet, "/", nil, http.Header{"Accept-Language": {lang}})
			if row := got.Text("#signal-" + s.ID); strings.Contains(row, "⟦") || strings.Contains(row, "no value") {
				t.Errorf("signal %s.%s in %s: %q", s.ID, s.Why, lang, row)
			}
		}
	}
}

func missing(body string) string {
	for _, mark := range []string{"⟦", "no value"} {
		if i := strings.Index(body, mark); i >= 0 {
			return body[max(0, i-60):min(len(body), i+60)]
		}
	}
	return ""
}

// everySignal is each reason that the gate and the snapshots give.
func everySignal(now time.Time) []gate.Signal {
	args := map[string]any{"capped": true, "mutations": int64(3), "deliveries": int64(1), "by": "anna", "hours": int64(4), "in_flight": int64(1),
		"stale": int64(1), "uncertain": int64(1), "names": "M-1", "stale_minutes": int64(2), "alert_minutes": int64(10), "replays": int64(1),
		"at_least": int64(50), "offset_ms": int64(3), "step_ms": int64(4), "Seq": int64(2)}
	whys := map[string][]string{
		gate.SignalDrops:      {"above_zero", "shadow", "off", "acknowledged", "none", "unreadable"},
		gate.SignalQuarantine: {"none", "open", "waiting"},
		gate.SignalInFlight:   {"none", "moving", "stuck", "uncertain", "stale"},
		gate.SignalPairs:      {"open", "never_scanned", "none", "scan_late"},
		gate.SignalReplay:     {"off", "too_few", "misbehaving", "above_band", "below_band", "in_band"},
		gate.SignalClock:      {"recorded", "in_step", "far_offset", "slight_offset", "far_step", "slight_step"},
	}
	var list []gate.Signal
	for id, reasons := range whys {
		for _, why := range reasons {
			list = append(list, gate.Signal{ID: id, Level: gate.LevelCheck, Why: why, Count: 2, WhyArgs: args, CheckedAt: now})
		}
	}
	return list
}
