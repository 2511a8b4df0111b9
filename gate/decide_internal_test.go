package gate

import (
	"testing"
	"time"
)

var decideNow = time.Date(2025, 10, 27, 8, 0, 0, 0, time.UTC)

// decideCase is what the store knows and what the request says; the zero value
// of each is the plain first request of an event in time.
type decideCase struct {
	name     string
	request  func(*Request)
	store    func(*seen)
	verdict  Verdict
	reason   Reason
	retry    bool
	reserve  bool
	everyway bool // holds in every mode
}

func reservedAs(state State) func(*seen) {
	return func(s *seen) {
		s.reserved = &reservation{state: state, mutationID: 7, fingerprint: [32]byte{1}}
	}
}

func occurred(at string) func(*Request) {
	return func(r *Request) { r.Event.OccurredAt = at }
}

func claimedBy(run string, closed bool) func(*seen) {
	return func(s *seen) {
		s.event, s.state, s.firstAt = true, eventKnown, decideNow
		s.claimed, s.run, s.closed = true, run, closed
	}
}

func all(changes ...func(*seen)) func(*seen) {
	return func(s *seen) {
		for _, c := range changes {
			c(s)
		}
	}
}

func tombed(s *seen)     { s.tombOf = 17 }
func rolledBack(s *seen) { s.rolledBack = 17 }
func frozen(s *seen)     { s.frozen = true }
func otherPrint(s *seen) { s.reserved.fingerprint = [32]byte{2} }
func inbox(state string) func(*seen) {
	return func(s *seen) { s.event, s.state, s.firstAt = true, state, decideNow }
}

// decideCases holds every reason that admission gives, and then the order in
// which they are looked for: the first that holds wins.
var decideCases = []decideCase{
	{name: "the first request", verdict: Forward},
	{name: "no event id", request: func(r *Request) { r.Event.ID = "" }, verdict: Quarantine, reason: ReasonMissingEventID},
	{name: "a tombstone", store: tombed, verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a new effect of an event that was rolled back", store: rolledBack, verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a known effect of an event that was rolled back", store: all(rolledBack, reservedAs(Committed)), verdict: Drop, reason: ReasonReplay, everyway: true},
	{name: "committed", store: reservedAs(Committed), verdict: Drop, reason: ReasonReplay},
	{name: "unknown", store: reservedAs(Unknown), verdict: Drop, reason: ReasonReplay},
	{name: "manual", store: reservedAs(Manual), verdict: Drop, reason: ReasonReplay},
	{name: "in flight", store: reservedAs(InFlight), verdict: Drop, reason: ReasonReplay, retry: true},
	{name: "refused", store: reservedAs(StRefused), verdict: Forward, reserve: true},
	{name: "undone", store: reservedAs(RolledBack), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "another mutation under the key", store: all(reservedAs(Committed), otherPrint), verdict: Quarantine, reason: ReasonKeyConflict},
	{name: "another mutation while one is in flight", store: all(reservedAs(InFlight), otherPrint), verdict: Quarantine, reason: ReasonKeyConflict},
	{name: "another mutation after a refusal", store: all(reservedAs(StRefused), otherPrint), verdict: Quarantine, reason: ReasonKeyConflict},
	{name: "the claiming run", store: claimedBy("run-1", false), verdict: Forward},
	{name: "the claiming run after its last", store: claimedBy("run-1", true), verdict: Forward},
	{name: "another run while open", store: claimedBy("run-2", false), verdict: Quarantine, reason: ReasonOtherRun},
	{name: "another run after the close", store: claimedBy("run-2", true), verdict: Drop, reason: ReasonReplay},
	{name: "frozen", store: frozen, verdict: Quarantine, reason: ReasonFrozen, everyway: true},
	{name: "no offset", request: occurred("2025-10-27T08:00:00"), verdict: Quarantine, reason: ReasonNoOffset},
	{name: "malformed time", request: occurred("yesterday"), verdict: Quarantine, reason: ReasonMalformedTimestamp},
	{name: "leap second", request: occurred("2016-12-31T23:59:60Z"), verdict: Quarantine, reason: ReasonLeapSecond},
	{name: "unknown offset", request: occurred("2025-10-27T08:00:00-00:00"), verdict: Quarantine, reason: ReasonUnsupportedTimestamp},
	{name: "at the limit behind", request: occurred("2025-10-27T07:55:00Z"), verdict: Forward},
	{name: "at the limit ahead", request: occurred("2025-10-27T08:05:00Z"), verdict: Forward},
	{name: "past the limit behind", request: occurred("2025-10-27T07:54:59.999999999Z"), verdict: Quarantine, reason: ReasonSkew},
	{name: "past the limit ahead", request: occurred("2025-10-27T08:05:00.000000001Z"), verdict: Quarantine, reason: ReasonSkew},
	{name: "late by the clock, in time when it was first named", request: occurred("2025-10-27T07:00:00Z"),
		store: func(s *seen) {
			s.event, s.state, s.firstAt = true, eventKnown, decideNow.Add(-time.Hour)
		}, verdict: Forward},
	{name: "late, but its event stands in the inbox", request: occurred("2025-10-16T08:00:00Z"), store: inbox(eventStored), verdict: Forward},
	{name: "late, but its event was applied", request: occurred("2025-10-16T08:00:00Z"), store: inbox(eventApplied), verdict: Forward},

	{name: "no event id before frozen", request: func(r *Request) { r.Event.ID = "" }, store: frozen, verdict: Quarantine, reason: ReasonMissingEventID},
	{name: "a tombstone before a replay", store: all(tombed, reservedAs(Committed)), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a tombstone before in flight", store: all(tombed, reservedAs(InFlight)), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a tombstone before unknown", store: all(tombed, reservedAs(Unknown)), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a tombstone before a new attempt", store: all(tombed, reservedAs(StRefused)), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a tombstone before a conflict", store: all(tombed, reservedAs(Committed), otherPrint), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "a replay before another run", store: all(claimedBy("run-2", false), reservedAs(Committed)), verdict: Drop, reason: ReasonReplay},
	{name: "a replay before frozen", store: all(frozen, reservedAs(Committed)), verdict: Drop, reason: ReasonReplay},
	{name: "a replay before skew", request: occurred("2025-10-16T08:00:00Z"), store: reservedAs(Committed), verdict: Drop, reason: ReasonReplay},
	{name: "a replay before a malformed time", request: occurred("yesterday"), store: reservedAs(Committed), verdict: Drop, reason: ReasonReplay},
	{name: "a conflict before skew", request: occurred("yesterday"), store: all(reservedAs(Committed), otherPrint), verdict: Quarantine, reason: ReasonKeyConflict},
	{name: "a rollback of the event before another run", store: all(claimedBy("run-2", true), rolledBack), verdict: Quarantine, reason: ReasonRolledBack, everyway: true},
	{name: "another run before frozen", store: all(claimedBy("run-2", false), frozen), verdict: Quarantine, reason: ReasonOtherRun},
	{name: "another run before skew", request: occurred("yesterday"), store: claimedBy("run-2", true), verdict: Drop, reason: ReasonReplay},
	{name: "frozen before skew", request: occurred("yesterday"), store: frozen, verdict: Quarantine, reason: ReasonFrozen, everyway: true},
}

func TestDecide(t *testing.T) {
	for _, tt := range decideCases {
		t.Run(tt.name, func(t *testing.T) {
			req := Request{Event: EventRef{Account: "home", ID: "evt-1", OccurredAt: "2025-10-27T08:00:00Z"}, Effect: "visit/1", Run: "run-1"}
			for _, mode := range []Mode{ModeOff, ModeShadow, ModeEnforce} {
				s := seen{mode: mode, maxSkew: 5 * time.Minute}
				if tt.request != nil {
					tt.request(&req)
				}
				if tt.store != nil {
					tt.store(&s)
				}
				r := decide(req, [32]byte{1}, s, decideNow)
				if r.verdict != tt.verdict || r.reason != tt.reason || r.retry != tt.retry || r.reserve != tt.reserve || r.always() != tt.everyway {
					t.Errorf("in mode %s: %+v (always %v)", mode, r, r.always())
				}
				if r.verdict != Forward && r.detail == "" {
					t.Errorf("in mode %s no words for %+v", mode, r)
				}
			}
		})
	}
}
