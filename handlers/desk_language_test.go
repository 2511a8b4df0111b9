package handlers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/web"
	"sluis/web/webtest"
)

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
