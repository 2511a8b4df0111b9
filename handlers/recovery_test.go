package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/handlers"
	"sluis/migrations/testdb"
	"sluis/snapshots"
	"sluis/web"
	"sluis/web/webtest"
)

func TestRecoveryMatrix(t *testing.T) {
	webtest.Matrix(t, testdb.Pool(t), handlers.Recovery(handlers.RecoveryDeps{}))
}

// texts is the text of each element that the selector finds.
func texts(page webtest.Response, selector string) []string {
	var list []string
	for _, s := range page.Doc.Find(selector).EachIter() {
		list = append(list, strings.Join(strings.Fields(s.Text()), " "))
	}
	return list
}

// formOf is the hidden fields of the one form that the selector finds.
func formOf(t *testing.T, page webtest.Response, selector string) url.Values {
	t.Helper()
	form := page.Doc.Find(selector)
	if form.Length() != 1 {
		t.Fatalf("%d forms match %s: %s", form.Length(), selector, page.Text("main"))
	}
	values := url.Values{}
	for _, in := range form.Find("input[type=hidden]").EachIter() {
		values.Add(in.AttrOr("name", ""), in.AttrOr("value", ""))
	}
	return values
}

func with(values url.Values, kv ...string) url.Values {
	for i := 0; i+1 < len(kv); i += 2 {
		values.Set(kv[i], kv[i+1])
	}
	return values
}

func checkAsked(t *testing.T, fake *fakeRecovery, want ...string) {
	t.Helper()
	fake.do(func() {
		if diff := cmp.Diff(want, fake.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		fake.asked = nil
	})
}

func TestNewRollbackProposesTheLastGoodSnapshot(t *testing.T) {
	fake := badNight()
	planner := recoveryConsole(t, fake).As(t, web.Planner)
	page := planner.Get("/rollbacks/new")
	for selector, want := range map[string]string{
		"#from":                           "Back to snapshot S-care-21",
		"#why":                            "Snapshot 21 is the last good one: the last before the repeat of event evt-1 at 2025-10-26 02:13:00 +01:00. P-1",
		"#suspect-count":                  "3 suspects from 3 hash pairs; 1 undecided",
		".banner.warn a[href^='/pairs/']": "P-9",
		"#plan tbody tr:first-child th":   "M-313",
		"#plan tbody tr:first-child td:last-child": "P-1 kept copy: M-1",
		"#plan button":             "Dry run r",
		".choices a[aria-current]": "S-care-21",
		".choices li:first-child a[href*='snapshot=22']": "S-care-22",
	} {
		if got := page.Text(selector); got != want {
			t.Errorf("%s = %q, want %q", selector, got, want)
		}
	}
	form := formOf(t, page, "form[method=post][action^='/rollbacks']")
	got := planner.Post("/rollbacks?i=care", with(form, "note", " de nacht ", "exclude", "M-314"))
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/rollbacks/5?i=care" {
		t.Fatalf("create: %d %s", got.Status, got.Text("main"))
	}
	checkAsked(t, fake, "plan 2 of 21 by planner")
	if fake.request.Note != "de nacht" || fake.request.Mutations[1].Mutation.ID != 315 {
		t.Errorf("request %+v", fake.request)
	}
}

func TestNewRollbackSaysWhenTheProposalMoved(t *testing.T) {
	fake := badNight()
	planner := recoveryConsole(t, fake).As(t, web.Planner)
	form := with(formOf(t, planner.Get("/rollbacks/new"), "#plan"), "note", "de nacht")
	fake.do(func() { fake.proposal.Suspects = fake.proposal.Suspects[:2] })
	got := planner.Post("/rollbacks?i=care", form)
	if got.Status != http.StatusConflict || !strings.Contains(got.Text("#conflict"), "3 suspects were shown and there are 2 now") || got.Text("#note") != "de nacht" {
		t.Errorf("%d %q, note %q", got.Status, got.Text("#conflict"), got.Text("#note"))
	}
	got = planner.Post("/rollbacks?i=care", with(form, "exclude", "everything"))
	if got.Status != http.StatusUnprocessableEntity || got.Text("#plan-error") == "" || got.Doc.Find("#exclude").AttrOr("value", "") != "everything" {
		t.Errorf("unreadable: %d %q", got.Status, got.Text("#plan-error"))
	}
	checkAsked(t, fake)
}

func TestNewRollbackDisabled(t *testing.T) {
	fake := badNight()
	console := recoveryConsole(t, fake)
	page := console.As(t, web.OnCall).Get("/rollbacks/new")
	if page.Doc.Find("#plan button[disabled]").Length() != 1 || !strings.HasPrefix(page.Text("#plan-why"), "Your role (On-call engineer) may look") {
		t.Errorf("on-call: %q", page.Text("#plan-why"))
	}
	fake.do(func() { fake.proposal = snapshots.Proposal{} })
	if page = console.As(t, web.Planner).Get("/rollbacks/new?snapshot=20"); page.Text("#plan-why") != "Nothing after this snapshot is suspect." {
		t.Errorf("nothing suspect: %q", page.Text("#plan-why"))
	}
	fake.do(func() { fake.good, fake.list = 0, nil })
	page = console.As(t, web.Planner).Get("/rollbacks/new")
	if page.Doc.Find("#plan").Length() != 0 || page.Text(".empty") != "There is no snapshot to go back to. Snapshots" ||
		!strings.HasPrefix(page.Text("#why"), "No snapshot is older than the repeat of event evt-1") {
		t.Errorf("no snapshot: %q %q", page.Text("#why"), page.Text(".empty"))
	}
	if got := console.As(t, web.Planner).Get("/rollbacks/new?snapshot=99"); got.Status != http.StatusNotFound {
		t.Errorf("unknown snapshot: %d", got.Status)
	}
}

func TestRollbackReady(t *testing.T) {
	fake := badNight()
	console := recoveryConsole(t, fake)
	page := console.As(t, web.Planner).Get("/rollbacks/5")
	if got := page.Doc.Find("[data-rollback-state]").AttrOr("data-rollback-state", ""); got != "ready" {
		t.Errorf("state %q", got)
	}
	want := []string{"2 visits removed for 2 clients", "1 record was changed by somebody else and is kept unless you choose otherwise",
		"18 later changes kept", "1 change outside the gate kept", "2,208 live records compared"}
	if diff := cmp.Diff(want, texts(page, ".totals li")); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if got := page.Text("#approve button"); got != "Approve and send 2 corrections to care p" {
		t.Errorf("button %q", got)
	}
	if got := page.Text("#approve .banner"); !strings.Contains(got, "The gate is in mode off") {
		t.Errorf("warning %q", got)
	}
	if got := texts(page, "#rollback-body .group > summary"); len(got) != 2 || got[0] != "2 visits removed for 2 clients" || !strings.Contains(got[1], "outside the gate") {
		t.Errorf("groups %q", got)
	}
	if got := page.Text("#row-3 .diff tbody tr"); got != "route R-2− none+ R-1" {
		t.Errorf("decision %q", got)
	}
	if got := page.Text("#row-3 button[aria-pressed=true]"); got != "Keep as it is" {
		t.Errorf("chosen %q", got)
	}
	if got := page.Doc.Find("#stream").AttrOr("hx-sse:connect", ""); got != "/stream/rollbacks/5?i=care&seen=ready-2" {
		t.Errorf("stream %q", got)
	}
	viewer := console.As(t, web.Viewer)
	page = viewer.Get("/rollbacks/5")
	if page.Doc.Find("main button:not([disabled])").Length() != 0 || !strings.HasPrefix(page.Text("#approve-why"), "Your role (Viewer)") {
		t.Errorf("a viewer's buttons: %q", page.Text("#approve-why"))
	}
	if got := viewer.Post("/rollbacks/5/approve", formOf(t, page, "#approve")); got.Status != http.StatusForbidden {
		t.Errorf("a viewer's approval: %d", got.Status)
	}
	checkAsked(t, fake)
	console.Advance(31 * time.Minute)
	if got := console.As(t, web.Planner).Get("/rollbacks/5").Text("#approve-why"); got != "This plan is too old to approve. Plan again." {
		t.Errorf("too old: %q", got)
	}
	if got := console.As(t, web.Planner).Get("/rollbacks/6"); got.Status != http.StatusNotFound {
		t.Errorf("unknown: %d", got.Status)
	}
}

func TestApprove(t *testing.T) {
	fake := badNight()
	planner := recoveryConsole(t, fake).As(t, web.Planner)
	form := formOf(t, planner.Get("/rollbacks/5"), `form[action*="/approve"]`)
	got := planner.Post("/rollbacks/5/approve?i=care", form)
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/rollbacks/5?i=care" {
		t.Fatalf("approve: %d %s", got.Status, got.Text("main"))
	}
	checkAsked(t, fake, "approve 5 2 abcd by planner")

	fake.do(func() {
		fake.rollback.State, fake.rollback.Version = snapshots.RollbackApplying, 4
		fake.rollback.ApprovedBy, fake.rollback.ApprovedAt = "anna", webtest.Start
		fake.refuse = &gate.DecidedError{What: "R-5", State: "applying", By: "anna", At: webtest.Start}
	})
	got = planner.Post("/rollbacks/5/approve?i=care", form)
	if got.Status != http.StatusConflict || got.Text("#conflict") != "▲ R-5 was already decided: Being applied by anna at 2025-10-26 02:13:00 +01:00. Your decision was not carried out." {
		t.Errorf("somebody else was first: %d %q", got.Status, got.Text("#conflict"))
	}
	fake.do(func() {
		fake.refuse = &gate.DecidedError{What: "R-5", State: "applying", By: "planner", At: webtest.Start}
	})
	if got = planner.Post("/rollbacks/5/approve?i=care", form); got.Status != http.StatusSeeOther {
		t.Errorf("a second click: %d", got.Status)
	}
	fake.do(func() { fake.refuse = gate.ErrStale })
	if got = planner.Post("/rollbacks/5/approve?i=care", form); got.Status != http.StatusConflict || !strings.Contains(got.Text("#conflict"), "changed since you saw it") {
		t.Errorf("stale: %d %q", got.Status, got.Text("#conflict"))
	}
	fake.do(func() { fake.refuse = errRecoveryDown })
	if got = planner.Post("/rollbacks/5/approve?i=care", form); got.Status != http.StatusInternalServerError || strings.Contains(got.Body, errRecoveryDown.Error()) {
		t.Errorf("failure: %d", got.Status)
	}
	if got = planner.Post("/rollbacks/5/approve?i=care", with(form, "hash", "abcd")); got.Status != http.StatusBadRequest {
		t.Errorf("a short hash: %d", got.Status)
	}
}

func TestApproveNamesTheRowsThatMoved(t *testing.T) {
	fake := badNight()
	planner := recoveryConsole(t, fake).As(t, web.Planner)
	form := formOf(t, planner.Get("/rollbacks/5"), "#approve")
	fake.do(func() {
		fake.rollback.State = snapshots.RollbackCancelled
		fake.refuse = &snapshots.MovedError{Rollback: 5, Rows: []snapshots.Moved{{Row: 2, EntityType: "visit", EntityID: "V-314", Subject: "C-12",
			Was: []byte(`{"route":"R-1"}`), Is: []byte(`{"route":"R-3"}`), By: "nurse.els", At: webtest.Start}}}
	})
	got := planner.Post("/rollbacks/5/approve?i=care", form)
	if got.Status != http.StatusConflict {
		t.Fatalf("status %d", got.Status)
	}
	for selector, want := range map[string]string{
		"#moved h2":             "▲ Nothing was sent: 1 row has moved since the dry run. Plan again to see it as it is now.",
		"#moved h3":             "visit V-314 C-12",
		"#moved article > p":    "Changed by nurse.els at 2025-10-26 02:13:00 +01:00",
		"#moved .diff tbody tr": "route R-1≠ R-3",
		"#moved form button":    "Plan again",
		"section q":             "dubbele nacht",
	} {
		if text := got.Text(selector); text != want {
			t.Errorf("%s = %q, want %q", selector, text, want)
		}
	}
	fake.do(func() { fake.refuse, fake.asked = nil, nil })
	planner.Post("/rollbacks/5/replan?i=care", formOf(t, got, "#moved form"))
	checkAsked(t, fake, "replan 5 by planner")
}

func TestRollbackStates(t *testing.T) {
	approved := func(rb *snapshots.Rollback) { rb.ApprovedBy, rb.ApprovedAt = "anna", webtest.Start }
	for _, c := range []struct {
		state  snapshots.RollbackState
		change func(*snapshots.Rollback)
		want   map[string]string
	}{
		{snapshots.RollbackPlanning, func(rb *snapshots.Rollback) {
			rb.PlannedAt, rb.ProgressStep, rb.ProgressDone, rb.ProgressTotal = time.Time{}, "live", 500, 2000
		}, map[string]string{"#rollback-status label": "Reading the live records", "#rollback-status .mut": "500 of 2,000",
			"#approve-why": "The dry run is not done yet."}},
		{snapshots.RollbackApplying, func(rb *snapshots.Rollback) {
			approved(rb)
			rb.ProgressStep, rb.ProgressDone, rb.ProgressTotal = "send", 1, 2
		}, map[string]string{"#rollback-status label": "Sending corrections", "#rollback-status .row-states": "2 ◆ to be sent"}},
		{snapshots.RollbackApplied, func(rb *snapshots.Rollback) {
			approved(rb)
			rb.ReadBack = &snapshots.ReadBack{Compared: 2}
		}, map[string]string{"#readback": "● 2 of 2 compared, 0 differ",
			"#rollback-status > p:last-child": "The keys of 3 undone mutations are closed: a redelivery will be held for a person."}},
		{snapshots.RollbackApplied, func(rb *snapshots.Rollback) {
			approved(rb)
			rb.ReadBack = &snapshots.ReadBack{Compared: 2, Differ: 1, Names: []string{"visit V-314"}}
		}, map[string]string{"#readback": "▲ 2 of 2 compared, 1 differ", "#rollback-status ul.mono": "visit V-314"}},
		{snapshots.RollbackFailed, func(rb *snapshots.Rollback) { rb.PlannedAt, rb.Error = time.Time{}, "no target" },
			map[string]string{"#rollback-status > p": "▲ Dry run failed The dry run could not be done, nothing was sent: no target", "#rollback-body .btns button": "Plan again"}},
		{snapshots.RollbackExpired, nil, map[string]string{"#rollback-body .btns button": "Plan again"}},
		{snapshots.RollbackCancelled, nil, map[string]string{"#rollback-status .st": "● Withdrawn"}},
	} {
		fake := badNight()
		fake.rollback.State = c.state
		if c.change != nil {
			c.change(&fake.rollback)
		}
		page := recoveryConsole(t, fake).As(t, web.Planner).Get("/rollbacks/5")
		if got := page.Doc.Find("[data-rollback-state]").AttrOr("data-rollback-state", ""); got != string(c.state) {
			t.Errorf("%s: state %q", c.state, got)
		}
		if page.Doc.Find(`form[action*="/approve"]`).Length() != 0 {
			t.Errorf("%s can be approved", c.state)
		}
		for selector, want := range c.want {
			if got := page.Text(selector); got != want {
				t.Errorf("%s: %s = %q, want %q", c.state, selector, got, want)
			}
		}
	}
}

func TestStoppedRollback(t *testing.T) {
	fake := badNight()
	fake.rollback.State, fake.rollback.ApprovedBy, fake.rollback.ApprovedAt = snapshots.RollbackStopped, "anna", webtest.Start
	fake.rows[1].State, fake.rows[1].Detail = snapshots.RowFailed, "the target said 412"
	planner := recoveryConsole(t, fake).As(t, web.Planner)
	page := planner.Get("/rollbacks/5")
	if got := page.Text("#row-2 > p"); got != "the target said 412" {
		t.Errorf("detail %q", got)
	}
	form := formOf(t, page, "#skip-2")
	got := planner.Post("/rollbacks/5/skip?i=care", with(form, "note", " "))
	if got.Status != http.StatusUnprocessableEntity || got.Text("#skip-2 .error") == "" {
		t.Errorf("without a note: %d", got.Status)
	}
	planner.Post("/rollbacks/5/skip?i=care", with(form, "note", "els belt"))
	planner.Post("/rollbacks/5/resume?i=care", formOf(t, page, `form[action*="/resume"]`))
	planner.Post("/rollbacks/5/cancel?i=care", formOf(t, page, `form[action*="/cancel"]`))
	checkAsked(t, fake, `skip 5 row 2 2 "els belt" by planner`, "resume 5 2 by planner", "cancel 5 2 by planner")
	fake.do(func() { fake.refuse = gate.ErrStale })
	got = planner.Post("/rollbacks/5/skip?i=care", form)
	if got.Status != http.StatusConflict || got.Text("#skip-note-2") != "els belt" {
		t.Errorf("stale: %d, note %q", got.Status, got.Text("#skip-note-2"))
	}
}

func TestChoiceGroupAndCSV(t *testing.T) {
	fake := badNight()
	planner := recoveryConsole(t, fake).As(t, web.Planner)
	form := formOf(t, planner.Get("/rollbacks/5"), "#row-3 form")
	got := planner.Post("/rollbacks/5/choice?i=care", with(form, "choice", "restore"))
	if got.Header.Get("Location") != "/rollbacks/5?i=care#row-3" {
		t.Errorf("choice leads to %q", got.Header.Get("Location"))
	}
	checkAsked(t, fake, "choice 5 row 3 restore 2 by planner")
	if got := planner.Post("/rollbacks/5/choice?i=care", with(form, "row", "x")); got.Status != http.StatusBadRequest {
		t.Errorf("row x: %d", got.Status)
	}
	group := planner.Get("/rollbacks/5/groups/compensation-visit")
	if names := texts(group, "article h3"); len(names) != 2 || names[0] != "visit V-315 C-12" {
		t.Errorf("group rows %q", names)
	}
	if got := planner.Get("/rollbacks/5/groups/nothing"); got.Status != http.StatusNotFound {
		t.Errorf("unknown group: %d", got.Status)
	}
	csv := planner.Get("/rollbacks/5.csv?group=compensation-visit")
	if lines := strings.Split(strings.TrimSpace(csv.Body), "\r\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], "1;correction;delete;visit;V-315;C-12;restore;to be sent;") {
		t.Errorf("csv %q", csv.Body)
	}
	if csv := planner.Get("/rollbacks.csv"); !strings.Contains(csv.Body, "R-5;Waits for approval;S-care-21;3;2;") {
		t.Errorf("list as csv %q", csv.Body)
	}
	if got := planner.Get("/rollbacks").Text("tbody tr"); !strings.HasPrefix(got, "R-5◆ Waits for approval dubbele nacht2 correctionsS-care-21") {
		t.Errorf("list %q", got)
	}
}
