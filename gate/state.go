package gate

import "fmt"

// State is where a reservation stands.
type State string

// The reservation states of the protocol.
const (
	InFlight   State = "in_flight"   // reserved; sent, or about to be
	Committed  State = "committed"   // applied, and the outcome recorded
	StRefused  State = "refused"     // definitely not applied
	Unknown    State = "unknown"     // may have been applied
	Manual     State = "manual"      // no look-up can tell: a person decides
	RolledBack State = "rolled_back" // its effect was undone; the key is closed
)

// StateEvent is what happens to a reservation.
type StateEvent string

// The events that move a reservation.
const (
	EvApplied    StateEvent = "applied"     // the target answered that it has the effect
	EvRefused    StateEvent = "refused"     // the target definitely did not apply it
	EvUncertain  StateEvent = "uncertain"   // no answer, or one that proves nothing
	EvFound      StateEvent = "found"       // look-up found the key
	EvAbsent     StateEvent = "absent"      // look-up proved absence
	EvNoLookUp   StateEvent = "no_look_up"  // no look-up possible, or retention over
	EvReserve    StateEvent = "reserve"     // a redelivery reserves again
	EvUndone     StateEvent = "undone"      // a rollback compensated it
	EvSaysDone   StateEvent = "says_done"   // a person, with evidence: it was applied
	EvSaysAbsent StateEvent = "says_absent" // a person, with evidence: it was not
)

// transitions is the only place that names a next state. The table's CHECK
// constraints refuse what it does not produce.
var transitions = map[State]map[StateEvent]State{
	InFlight: {
		EvApplied: Committed, EvRefused: StRefused, EvUncertain: Unknown,
		EvFound: Committed, EvAbsent: StRefused, EvNoLookUp: Unknown,
	},
	Unknown: {
		EvFound: Committed, EvAbsent: StRefused, EvNoLookUp: Manual,
		EvSaysDone: Committed, EvSaysAbsent: StRefused,
	},
	Manual: {
		EvFound: Committed, EvSaysDone: Committed, EvSaysAbsent: StRefused,
	},
	StRefused: {EvReserve: InFlight},
	Committed: {EvUndone: RolledBack},
}

// TransitionError reports an event that a state does not take.
type TransitionError struct {
	From  State
	Event StateEvent
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("a reservation that is %s does not take %q", e.From, e.Event)
}

// Next names the state after ev, or a *TransitionError. Terminal for every
// event: rolled_back.
func (s State) Next(ev StateEvent) (State, error) {
	if to, ok := transitions[s][ev]; ok {
		return to, nil
	}
	return s, &TransitionError{s, ev}
}
