package gate

import (
	"errors"
	"fmt"
	"time"
)

// seen is what the store knows about a request before it is judged: one read,
// one round trip. Whatever it says is advice; the unique key decides.
type seen struct {
	mode    Mode
	frozen  bool
	maxSkew time.Duration

	event      bool // the event is in the inbox or was claimed
	state      string
	run        string
	claimed    bool
	closed     bool
	firstAt    time.Time // when the event first arrived
	tombOf     int64     // rollback that closed the natural key, 0 when none
	rolledBack int64     // rollback that closed the event, 0 when none
	reserved   *reservation
}

// reservation is the narrow row of a key.
type reservation struct {
	state       State
	fence       int64
	ref         string
	mutationID  int64
	fingerprint [32]byte
	firstAt     time.Time
}

// ruling is what admission decides, before the mode is applied.
type ruling struct {
	verdict Verdict
	reason  Reason
	detail  string
	retry   bool // the key is in flight: 409
	reserve bool // a refused key is reserved again
	binding bool // holds in every mode, as what a person closed or froze does
}

func forward() ruling { return ruling{verdict: Forward} }

func hold(reason Reason, format string, args ...any) ruling {
	return ruling{verdict: Quarantine, reason: reason, detail: fmt.Sprintf(format, args...)}
}

func drop(format string, args ...any) ruling {
	return ruling{verdict: Drop, reason: ReasonReplay, detail: fmt.Sprintf(format, args...)}
}

// always reports whether a ruling holds in every mode: what a person closed or
// froze is not sent, whatever the mode.
func (r ruling) always() bool {
	return r.binding || r.reason == ReasonRolledBack || r.reason == ReasonFrozen
}

// decide is the admission of one mutation, in the order of the protocol:
// identity, closed keys, replay, closed events, claim, freeze, time. It is a function of its
// arguments alone.
func decide(req Request, fingerprint [32]byte, s seen, now time.Time) ruling {
	if req.Event.ID == "" {
		return hold(ReasonMissingEventID, "the event has no id, so a repeat could not be recognised")
	}
	if s.tombOf != 0 {
		return hold(ReasonRolledBack, "blocked by rollback R-%d", s.tombOf)
	}
	if r, known := decideKnown(fingerprint, s); known {
		r.binding = s.rolledBack != 0
		return r
	}
	if s.rolledBack != 0 {
		return hold(ReasonRolledBack, "the event was undone by rollback R-%d", s.rolledBack)
	}
	if r := decideClaim(req.Run, s); r.verdict != Forward {
		return r
	}
	if s.frozen {
		return hold(ReasonFrozen, "the integration is frozen: everything new is held")
	}
	return decideTime(req.Event.OccurredAt, s, now)
}

// decideKnown judges a key that is reserved already.
func decideKnown(fingerprint [32]byte, s seen) (ruling, bool) {
	r := s.reserved
	switch {
	case r == nil:
		return ruling{}, false
	case r.fingerprint != fingerprint:
		return hold(ReasonKeyConflict, "the key was used for another mutation, M-%d", r.mutationID), true
	case r.state == InFlight:
		return ruling{verdict: Drop, reason: ReasonReplay, retry: true, detail: "the same mutation is being sent now"}, true
	case r.state == StRefused:
		return ruling{verdict: Forward, reserve: true}, true
	case r.state == RolledBack:
		return hold(ReasonRolledBack, "its effect was undone by a rollback"), true
	default:
		return drop("the same mutation was admitted before as M-%d", r.mutationID), true
	}
}

// decideClaim judges a new key against the run that claimed its event.
func decideClaim(run string, s seen) ruling {
	switch {
	case !s.claimed || s.run == run:
		return forward()
	case s.closed:
		return drop("the event was handled and closed by another run")
	default:
		return hold(ReasonOtherRun, "another run claimed the event and has not closed it")
	}
}

// decideTime judges when the event says that it happened against when it first
// arrived: an event that waited in a queue of ours is not late. One that the
// inbox holds as stored or applied was judged when it came, by us or by the
// person who released it, and is not judged again.
func decideTime(occurred string, s seen, now time.Time) ruling {
	if s.event && (s.state == eventStored || s.state == eventApplied) {
		return forward()
	}
	at, err := ParseTimestamp(occurred)
	var bad *TimestampError
	if errors.As(err, &bad) {
		return hold(bad.Reason, "%s", bad.Msg)
	}
	arrived := now
	if s.event {
		arrived = s.firstAt
	}
	if skew := arrived.Sub(at); skew.Abs() > s.maxSkew {
		return hold(ReasonSkew, "occurred_at is %s %s the gate's clock, the limit is %s", roundSkew(skew.Abs()), beforeAfter(skew), s.maxSkew)
	}
	return forward()
}

func beforeAfter(skew time.Duration) string {
	if skew > 0 {
		return "behind"
	}
	return "ahead of"
}

func roundSkew(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
