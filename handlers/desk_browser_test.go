package handlers_test

import (
	"encoding/json"
	"testing"
	"time"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/handlers"
	"sluis/web"
	"sluis/web/browsertest"
	"sluis/web/webtest"
)

// richDesk is a desk on which each page has something to show.
func richDesk() *fakeDesk {
	released := heldItem(16)
	released.State, released.DecidedBy, released.DecidedAt, released.ReleasedAs = gate.ItemReleased, "anna", webtest.Start, 300
	unknown := mutationOf(12, "E-1", gate.OpCreate, "", `{}`)
	unknown.State, unknown.Version = gate.Unknown, 4
	again := mutationOf(2, "E-1", gate.OpUpdate, "V-1", `{"a":2}`)
	again.Verdict, again.Reason, again.Forwarded, again.State = gate.Drop, gate.ReasonReplay, false, ""
	return &fakeDesk{
		items: []gate.Item{heldItem(18), heldItem(17), released}, pairs: []gate.Pair{pairOf(5), pairOf(4)}, open: []gate.MutationRecord{unknown},
		mutations: []gate.MutationRecord{mutationOf(1, "E-1", gate.OpCreate, "V-1", `{"a":1,"b":2}`), again},
		deliveries: []gate.DeliveryRecord{{Event: gate.EventRef{Account: "roster", ID: "E-1"}, Payload: []byte(`{"n":1}`), Disposition: gate.Stored},
			{Event: gate.EventRef{Account: "roster", ID: "E-1"}, Payload: []byte(`{"n":2}`), Disposition: gate.Duplicate, Reason: gate.ReasonReplay}},
		drops:    []gate.DropGroup{{Account: "roster", EventID: "E-1", Reason: gate.ReasonReplay, Mode: gate.ModeShadow, Mutations: 1, LastID: 3}},
		entities: []gate.Projected{{Type: "visit", ID: "V-1", Version: 3, Subject: "C-12", State: json.RawMessage(`{"a":1}`)}},
		records: []audit.Record{{ID: 9, Pos: 3, Hash: [32]byte{1}, At: webtest.Start, ActorKind: "person", Actor: "anna", Integration: "care", Action: "item.rejected",
			Object: "Q-17", Detail: json.RawMessage(`{"note":"seen"}`)}},
		signals: []gate.Signal{{ID: gate.SignalDrops, Level: gate.LevelAct, Why: "above_zero", Count: 1, UpTo: 9, CheckedAt: webtest.Start,
			WhyArgs: map[string]any{"mutations": int64(312), "deliveries": int64(1), "capped": false}}},
	}
}

func deskBrowser(t *testing.T, fake *fakeDesk, path string) (*browsertest.B, *webtest.Console, string) {
	t.Helper()
	console := deskConsole(t, fake, handlers.SignIn{Attempts: web.NewAttempts()})
	console.User(t, web.Planner)
	base := serve(t, console)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	b.Open(base + path)
	return b, console, base
}

func TestDeskPagesInTheBrowser(t *testing.T) {
	b, _, base := deskBrowser(t, richDesk(), "/")
	for _, path := range []string{"/", "/drops", "/drops/roster/E-1", "/quarantine?state=all", "/quarantine/17", "/quarantine/16", "/in-flight",
		"/pairs", "/pairs/4", "/history?q=C-12", "/history/visit/V-1", "/mutations/2", "/audit?verify=1", "/audit/9"} {
		b.Axe(base + path)
	}
}

func TestDashboardLivesInTheBrowser(t *testing.T) {
	fake := richDesk()
	b, console, _ := deskBrowser(t, fake, "/?i=care")
	b.WaitText("#signal-drops .st", "Act now")
	b.Type("#ack-note", "half a no")
	fake.change(func() {
		fake.signals[0].Level, fake.signals[0].Why, fake.signals[0].Count = gate.LevelOK, "none", 0
		fake.items[0].State, fake.items[0].DecidedBy, fake.items[0].DecidedAt = gate.ItemRejected, "anna", webtest.Start
	})
	console.Hub.Publish(handlers.Topic("care", "signals"))
	b.WaitText("#signal-drops .st", "In range")
	b.Wait("!document.querySelector('#dashboard-items').textContent.includes('Q-18')")
	if got := browsertest.Eval[string](b, "document.querySelector('#ack-note').value"); got != "half a no" {
		t.Errorf("what was typed became %q", got)
	}
}

func TestQuarantineInTheBrowser(t *testing.T) {
	fake := richDesk()
	b, console, base := deskBrowser(t, fake, "/quarantine?i=care")
	b.Key("j")
	b.Wait("document.querySelector('#Q-18.cursor')")
	fake.change(func() {
		fake.items = append([]gate.Item{heldItem(19)}, fake.items...)
		fake.at(17).State, fake.at(17).DecidedBy, fake.at(17).DecidedAt = gate.ItemRejected, "piet", webtest.Start
	})
	console.Hub.Publish(handlers.Topic("care", "items"))
	b.WaitText("#new-items", "1 new item since this page was shown.")
	b.WaitText("#Q-17-state", "Rejected by piet")
	b.Wait("!document.querySelector('#Q-19') && document.querySelector('#Q-18.cursor')")

	b.Open(base + "/quarantine/18?i=care")
	b.Key("x")
	b.Wait("document.activeElement.id === 'note' && document.querySelector('.danger[data-chosen]')")
	if fake.stateOf(18) != gate.ItemOpen {
		t.Fatal("a single key decided")
	}
	b.Key("Escape")
	b.Key("r")
	b.Type("#note", "meant so")
	b.Key("Ctrl+Enter")
	b.Wait("location.pathname === '/quarantine/19'")
	b.WaitText("#decided-18", "Is sent in")
	console.Advance(11 * time.Second)
	fake.change(func() {
		i := fake.at(18)
		i.State, i.ReleasedAs = gate.ItemReleased, 300
	})
	console.Hub.Publish(handlers.Topic("care", "items"))
	b.WaitText("#decided-18", "Released by planner")
}
