package gate

import (
	"context"
	"encoding/json"
	"time"
)

// OutcomeClass is what is known of a send after the target answered, or did not.
type OutcomeClass string

// The classes of an outcome.
const (
	// Applied: the target has the effect, now or from an earlier send of the key.
	Applied OutcomeClass = "applied"
	// Refused: the target definitely did not apply it.
	Refused OutcomeClass = "refused"
	// Uncertain: it may have been applied; only a look-up can tell.
	Uncertain OutcomeClass = "uncertain"
)

// Send is one mutation on its way to a target.
type Send struct {
	Key       Key // of the reservation; sent as the Idempotency-Key
	Mutation  Mutation
	IfVersion *int64 // the target's version that the entity must still have; nil for no precondition
	Actor     string // who caused it, for the target's own record
}

// Outcome is a target's answer. A target never returns a Go error from Apply:
// whatever happened is an outcome, because the caller must settle it.
type Outcome struct {
	Class  OutcomeClass
	Ref    string  // the target's id of the result
	Status int     // HTTP status, 0 when there was no answer
	Detail string  // one line: what the target said
	Entity *Entity // the entity after the effect, where the target returns it
}

// LookUpClass is the answer to "do you know this key?".
type LookUpClass string

// The answers of a look-up.
const (
	// Found: the target has applied the key; Outcome says with what result.
	Found LookUpClass = "found"
	// Absent: the target proves that it has not applied the key (within retention).
	Absent LookUpClass = "absent"
	// NoAnswer: the target could not be asked now; ask again.
	NoAnswer LookUpClass = "no_answer"
	// Forgotten: the target's key memory does not reach back to the send, so
	// no look-up will ever tell: a person decides.
	Forgotten LookUpClass = "forgotten"
)

// LookUp is the result of asking a target for a key.
type LookUp struct {
	Class  LookUpClass
	Ref    string
	Detail string
	Entity *Entity
}

// Entity is a record as the target has it. State is canonical JSON.
type Entity struct {
	Type      string
	ID        string
	Version   int64
	State     json.RawMessage
	UpdatedAt time.Time
	UpdatedBy string
}

// Target is a record system. It is declared here, by its user; sluis/gate/target
// implements it over HTTP.
type Target interface {
	// Apply sends one mutation with its key.
	Apply(ctx context.Context, s Send) Outcome
	// LookUp asks whether the key that was reserved at since was applied.
	LookUp(ctx context.Context, key Key, since time.Time) LookUp
	// Read returns one entity; ErrNotFound when the target has none.
	Read(ctx context.Context, typ, id string) (Entity, error)
	// Live returns a page of the live state in (type, id) order after the
	// cursor; an empty next cursor means the end.
	Live(ctx context.Context, after string, limit int) (page []Entity, next string, err error)
}

// Source reads what a provider sends: raw is canonical JSON.
type Source interface {
	// Identify finds the event's account, id, time and kind. A field that is
	// missing stays empty; the gate decides what that means.
	Identify(raw json.RawMessage) (ref EventRef, kind string)
}

// Clock gives the gate its time.
type Clock interface {
	// Now is UTC, monotonic since start: it never goes back.
	Now() time.Time
}
