package handlers_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluis/web"
	"sluis/web/webtest"
)

func TestSnapshotPages(t *testing.T) {
	fake := badNight()
	fake.list[0].PrevHash = [32]byte{9} // 22 does not follow 21
	fake.list[1].VerifiedAt = webtest.Start
	console := recoveryConsole(t, fake)
	page := console.As(t, web.OnCall).Get("/snapshots")
	var rows []string
	for _, tr := range page.Doc.Find("tbody tr").EachIter() {
		line := tr.Find("th").Text() + " " + tr.Find("td").Eq(2).Text() + " " + tr.Find("td .st").Text()
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"S-care-22 +100 ▲ broken", "S-care-21 ● last good +100 ● whole", "S-care-20 – ? not verified yet"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := page.Text("#snapshot-chain"); !strings.HasPrefix(got, "▲ Act now number 20") {
		t.Errorf("chain %q", got)
	}
	if got := page.Text("#why"); !strings.HasPrefix(got, "Snapshot 21 is the last good one") {
		t.Errorf("why %q", got)
	}
	oncall := console.As(t, web.OnCall)
	for _, path := range []string{"/snapshots/take?i=care", "/snapshots/verify?i=care"} {
		if got := oncall.Post(path, nil); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/snapshots?i=care" {
			t.Errorf("%s: %d", path, got.Status)
		}
	}
	checkAsked(t, fake, "take care by oncall", "verify care by oncall")
	one := oncall.Get("/snapshots/21")
	if got := one.Text("section[aria-labelledby=positions]"); !strings.Contains(got, "M-210") || !strings.Contains(got, "15"+strings.Repeat("0", 62)) {
		t.Errorf("positions %q", got)
	}
	if one.Doc.Find("a[rel=prev][href^='/snapshots/20']").Length() != 1 || one.Doc.Find("a[rel=next][href^='/snapshots/22']").Length() != 1 {
		t.Error("the neighbours are not linked")
	}
	if csv := oncall.Get("/snapshots.csv"); strings.Count(csv.Body, "\r\n") != 4 {
		t.Errorf("csv %q", csv.Body)
	}
	fake.do(func() { fake.broken = errRecoveryDown })
	if got := oncall.Get("/snapshots").Text("#snapshot-chain"); !strings.HasPrefix(got, "? No data") {
		t.Errorf("unreadable chain %q", got)
	}
}
