package handlers_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/handlers"
	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
	"sluis/web/webtest"
)

func TestIntegrations(t *testing.T) {
	fake := badNight()
	console := recoveryConsole(t, fake)
	planner, admin := console.As(t, web.Planner), console.As(t, web.Admin)
	page := planner.Get("/integrations")
	form := formOf(t, page, "#mode-care")
	if page.Doc.Find("#freeze-care button[disabled]").Length() != 1 || page.Doc.Find("#mode-care input[value=off][checked]").Length() != 1 {
		t.Errorf("forms: %s", page.Text("#care"))
	}
	got := planner.Post("/integrations/care/mode?i=care", with(form, "mode", "enforce", "note", ""))
	if got.Status != http.StatusUnprocessableEntity || got.Text("#mode-care .error") == "" || got.Doc.Find("#mode-care input[value=enforce][checked]").Length() != 1 {
		t.Errorf("without a note: %d", got.Status)
	}
	if got = planner.Post("/integrations/care/mode?i=care", with(form, "note", "na de nacht")); got.Header.Get("Location") != "/integrations?i=care" {
		t.Errorf("switch: %d", got.Status)
	}
	if got = planner.Post("/integrations/care/freeze?i=care", with(form, "frozen", "yes")); got.Status != http.StatusForbidden {
		t.Errorf("a planner's freeze: %d", got.Status)
	}
	admin.Post("/integrations/care/freeze?i=care", form)
	checkAsked(t, fake, `mode care enforce 4 "na de nacht" by planner`, `frozen care true 4 "na de nacht" by admin`)
	fake.do(func() { fake.refuse = &gate.DecidedError{What: "care", State: "shadow", By: "piet", At: webtest.Start} })
	got = planner.Post("/integrations/care/mode?i=care", form)
	if got.Status != http.StatusConflict || !strings.Contains(got.Text("#conflict"), "care was switched by piet at 2025-10-26 02:13:00 +01:00") || got.Text("#mode-note-care") != "na de nacht" {
		t.Errorf("lost race: %d %q", got.Status, got.Text("#conflict"))
	}
	if got = planner.Post("/integrations/care/mode?i=care", with(form, "mode", "loud")); got.Status != http.StatusBadRequest {
		t.Errorf("unknown mode: %d", got.Status)
	}
}

func TestChrome(t *testing.T) {
	fake := badNight()
	fake.counts, fake.integrations[0].Frozen = 7, true
	fake.open = []gate.MutationRecord{{State: gate.InFlight, ReservedAt: webtest.Start}, {State: gate.InFlight, ReservedAt: webtest.Start.Add(-3 * time.Minute)}, {State: gate.Manual}}
	fake.rollback.State, fake.rollback.ApprovedBy, fake.rollback.AppliedAt = snapshots.RollbackApplied, "anna", webtest.Start
	fake.banner = &fake.rollback
	ctx := i18n.Context(context.Background(), "nl", nil, webtest.Start)
	got, err := handlers.Chrome(ctx, fake, fake, "care")
	if err != nil {
		t.Fatal(err)
	}
	known := views.Count{N: 7, Known: true}
	if diff := cmp.Diff(map[string]views.Count{"quarantine": known, "pairs": known, "inflight": {N: 2, Known: true}}, got.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	var lines []string
	for _, b := range got.Banners {
		lines = append(lines, string(b.Tone)+" "+b.Text+" "+b.Href)
	}
	want := []string{
		"warn care is bevroren: alles wat binnenkomt wordt vastgehouden. /integrations?i=care",
		"warn De poort staat uit voor care: herhalingen worden opnieuw uitgevoerd. /integrations?i=care",
		"ok R-5 is uitgevoerd op 2025-10-26 02:13:00 +01:00, met akkoord van anna: 2 correcties. /rollbacks/5?i=care",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("banners (-want +got):\n%s", diff)
	}
	fake.broken = errRecoveryDown
	got, err = handlers.Chrome(ctx, fake, fake, "care")
	if err == nil || got.Counts["quarantine"].Known || !got.Counts["pairs"].Known {
		t.Errorf("what fails is not known: %v %+v", err, got.Counts)
	}
}
