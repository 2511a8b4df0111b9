package trace

import (
	"fmt"
	"time"

	"sluis/gate"
)

// ClockTrouble is the clock-trouble trace, built anew: steps of the wall clock
// that change no decision, and events whose own time cannot be trusted. Every
// delivery has its expectation in enforce mode. Nothing in it needs a change.
func ClockTrouble() *Trace {
	from := time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC)
	r := &recorder{trace: Trace{Meta: Meta{"care-clock", integration, zone, from, from.Add(10 * time.Hour), ""}}}
	r.twoOffsets(from)
	r.wallSteps(from.Add(2 * time.Hour))
	r.drift(from.Add(5 * time.Hour))
	r.badTimes(from.Add(7 * time.Hour))
	return r.finish()
}

// arrive records a delivery with a time as the provider writes it.
func (r *recorder) arrive(at time.Time, id, occurred string, d gate.Disposition, why gate.Reason) {
	raw := string(encode(webhook{
		EventID: id, Account: account, Kind: "shift.confirmed", OccurredAt: occurred, By: "nurse/a.postma",
		Data: map[string]string{"nurse": nurses[0]},
	}))
	r.step(Step{Kind: KindDeliver, At: at, Raw: &raw, Expect: &Expect{d, why}})
}

// wall records a step of the wall clock.
func (r *recorder) wall(at time.Time, d time.Duration) {
	r.step(Step{Kind: KindClock, At: at, WallStepMS: d.Milliseconds()})
}

// twoOffsets: 02:30 happens twice in this night. The two are two events, an
// hour apart; and the first one again is a replay, however late.
func (r *recorder) twoOffsets(from time.Time) {
	const first, second = "2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00"
	r.note(from, "The same wall time with two offsets: two events, both admitted.")
	r.arrive(from.Add(30*time.Minute+3*time.Second), "evt-clock-0230a", first, gate.Stored, "")
	r.arrive(from.Add(90*time.Minute+3*time.Second), "evt-clock-0230b", second, gate.Stored, "")
	r.arrive(from.Add(100*time.Minute), "evt-clock-0230a", first, gate.Duplicate, gate.ReasonReplay)
}

// wallSteps: NTP steps the wall clock by an hour forward, and back by two.
func (r *recorder) wallSteps(at time.Time) {
	now := func(d time.Duration) string { return at.Add(d).Format(time.RFC3339) }
	r.note(at, "NTP steps the wall clock forward, then back; our clock goes on evenly.")
	r.arrive(at.Add(time.Minute), "evt-clock-before", now(time.Minute), gate.Stored, "")
	r.wall(at.Add(10*time.Minute), time.Hour)
	r.arrive(at.Add(11*time.Minute), "evt-clock-forward", now(11*time.Minute), gate.Stored, "")
	r.arrive(at.Add(12*time.Minute), "evt-clock-before", now(time.Minute), gate.Duplicate, gate.ReasonReplay)
	r.wall(at.Add(20*time.Minute), -2*time.Hour)
	r.arrive(at.Add(21*time.Minute), "evt-clock-back", now(21*time.Minute), gate.Stored, "")
	r.arrive(at.Add(22*time.Minute), "evt-clock-forward", now(11*time.Minute), gate.Duplicate, gate.ReasonReplay)
	r.wall(at.Add(30*time.Minute), time.Hour)
}

// drift: the provider's clock runs away, first behind ours and then ahead;
// five minutes exactly are still within the limit.
func (r *recorder) drift(at time.Time) {
	r.note(at, "The provider's clock drifts past the limit of five minutes.")
	for i, d := range []struct {
		off  time.Duration
		want gate.Disposition
		why  gate.Reason
	}{
		{-time.Minute, gate.Stored, ""}, {-5 * time.Minute, gate.Stored, ""},
		{-5*time.Minute - time.Second, gate.Quarantined, gate.ReasonSkew},
		{-26 * time.Hour, gate.Quarantined, gate.ReasonSkew},
		{5 * time.Minute, gate.Stored, ""},
		{5*time.Minute + time.Second, gate.Quarantined, gate.ReasonSkew},
	} {
		arrival := at.Add(time.Duration(i+1) * 10 * time.Minute)
		r.arrive(arrival, fmt.Sprintf("evt-clock-drift%d", i+1), arrival.Add(d.off).Format(time.RFC3339), d.want, d.why)
	}
}

// badTimes: an event without an id, and times that name no instant.
func (r *recorder) badTimes(at time.Time) {
	r.note(at, "No event id, and times that name no instant.")
	r.arrive(at.Add(time.Minute), "", at.Add(time.Minute).Format(time.RFC3339), gate.Quarantined, gate.ReasonMissingEventID)
	for i, t := range []struct {
		occurred string
		why      gate.Reason
	}{
		{"26-10-2025 08:02", gate.ReasonMalformedTimestamp},
		{"2025-10-26t07:03:00z", gate.ReasonMalformedTimestamp},
		{"2025-10-26T07:04:00,5Z", gate.ReasonMalformedTimestamp},
		{"2025-10-26T07:05:00+02:60", gate.ReasonMalformedTimestamp},
		{"", gate.ReasonMalformedTimestamp},
		{"2025-10-26T02:07:00", gate.ReasonNoOffset},
		{"2025-10-31T23:59:60Z", gate.ReasonLeapSecond},
		{"2025-10-26T07:09:00-00:00", gate.ReasonUnsupportedTimestamp},
		{"2025-10-26T21:10:00+14:30", gate.ReasonUnsupportedTimestamp},
		{"2025-10-26T08:11:00+01:00[Europe/Amsterdam]", gate.ReasonUnsupportedTimestamp},
	} {
		r.arrive(at.Add(time.Duration(i+2)*time.Minute), fmt.Sprintf("evt-clock-bad%02d", i+1), t.occurred, gate.Quarantined, t.why)
	}
}
