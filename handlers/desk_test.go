package handlers_test

import (
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
	if got := page.Text("#signal-drops"); !strings.Contains(got, "deliveries 1, mutations 312; above zero is red") || !strings.Contains(got, "Review 1") {
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
