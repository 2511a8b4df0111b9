package handlers_test

import (
	"testing"

	"sluis/handlers"
	"sluis/snapshots"
	"sluis/web"
	"sluis/web/browsertest"
	"sluis/web/webtest"
)

func TestRollbackMovesOnInTheBrowser(t *testing.T) {
	fake := badNight()
	fake.rollback.State, fake.rollback.Version, fake.rollback.ProgressStep = snapshots.RollbackPlanning, 1, "live"
	console := recoveryConsole(t, fake)
	console.User(t, web.Planner)
	base := serve(t, console)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	b.Open(base + "/rollbacks/5?i=care")
	b.WaitText("#rollback-status label", "Reading the live records")
	b.WaitText("#live", "Live, updated")
	move := func(change func(*snapshots.Rollback)) {
		fake.do(func() { change(&fake.rollback) })
		console.Hub.Publish(handlers.Topic("care", "rollback:5"))
	}

	move(func(rb *snapshots.Rollback) { rb.State, rb.Version = snapshots.RollbackReady, 2 })
	b.WaitText("#approve button", "Approve and send 2 corrections to care")

	// What a person is about to decide on does not change under the hand.
	move(func(rb *snapshots.Rollback) {
		rb.Version, rb.Hash, rb.Summary.Compensations = 3, [32]byte{1}, 3
	})
	b.WaitText("#rollback-status a", "show it as it is now")
	if got := b.Text("#approve button"); got != "Approve and send 2 corrections to care p" {
		t.Errorf("the button has become %q", got)
	}
	b.Click("#rollback-status a")
	b.WaitText("#approve button", "Approve and send 3 corrections to care")

	b.Click("#approve button")
	checkAskedSoon(b, fake)
	move(func(rb *snapshots.Rollback) {
		rb.State, rb.Version, rb.ApprovedBy, rb.ApprovedAt = snapshots.RollbackApplying, 4, "planner", webtest.Start
	})
	b.Open(base + "/rollbacks/5?i=care")
	b.WaitText("#rollback-status", "are being sent to care")
	move(func(rb *snapshots.Rollback) {
		rb.State, rb.Version, rb.AppliedAt, rb.ReadBack = snapshots.RollbackApplied, 5, webtest.Start, &snapshots.ReadBack{Compared: 3}
	})
	b.WaitText("#readback", "3 of 3 compared, 0 differ")
	b.WaitText("#notices", "R-5 was applied")
}

// checkAskedSoon waits until the approval has left the browser.
func checkAskedSoon(b *browsertest.B, fake *fakeRecovery) {
	b.WaitText(".flash", "R-5 is approved")
	fake.do(func() { fake.asked = nil })
}

func TestRecoveryPagesInTheBrowser(t *testing.T) {
	fake := badNight()
	fake.rows[1].State, fake.rows[1].Detail = snapshots.RowFailed, "the target said 412"
	fake.integrations[0].Frozen = true
	console := recoveryConsole(t, fake)
	console.User(t, web.Planner)
	base := serve(t, console)
	b := browsertest.Browser(t)
	b.SignIn(base, "planner", webtest.Password)
	for _, path := range []string{"/rollbacks", "/rollbacks/new", "/rollbacks/5", "/rollbacks/5/groups/compensation-visit", "/snapshots", "/snapshots/21", "/integrations"} {
		b.Axe(base + path + "?i=care")
	}
	fake.do(func() {
		fake.rollback.State, fake.rollback.ApprovedBy, fake.rollback.ApprovedAt = snapshots.RollbackStopped, "anna", webtest.Start
	})
	b.Axe(base + "/rollbacks/5?i=care")
	fake.do(func() {
		fake.refuse = &snapshots.MovedError{Rollback: 5, Rows: []snapshots.Moved{{Row: 2, EntityType: "visit", EntityID: "V-314", By: "nurse.els", At: webtest.Start}}}
	})
	b.Expect("409")
	b.Click(`form[action*="/resume"] button`)
	b.WaitText("#moved h2", "1 row has moved")
	b.AxeHere("a rollback whose rows moved")
}
