package gate

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Mode says what the gate does with its decisions for one integration.
type Mode string

// The modes of an integration.
const (
	// ModeOff records each mutation and forwards it; nothing is decided.
	ModeOff Mode = "off"
	// ModeShadow decides and records as ModeEnforce does, and forwards regardless.
	ModeShadow Mode = "shadow"
	// ModeEnforce acts on its decisions.
	ModeEnforce Mode = "enforce"
)

// Valid reports whether m is one of the three modes.
func (m Mode) Valid() bool { return m == ModeOff || m == ModeShadow || m == ModeEnforce }

// ActorKind says what sort of actor acts.
type ActorKind string

// The kinds of actor.
const (
	KindPerson ActorKind = "person"
	KindAgent  ActorKind = "agent"
	KindJob    ActorKind = "job"
)

// Actor is the named person, agent or job that acts. Every command takes one
// and the audit record names it (incident 1, rule j).
type Actor struct {
	Kind ActorKind
	Name string
}

// Person, Agent and Job name an actor of that kind.
func Person(name string) Actor { return Actor{KindPerson, name} }

// Agent is the actor for an agent's own calls.
func Agent(name string) Actor { return Actor{KindAgent, name} }

// Job is the actor for periodic and deferred work.
func Job(name string) Actor { return Actor{KindJob, name} }

// Op is what a mutation does to its entity.
type Op string

// The operations.
const (
	OpCreate Op = "create"
	OpUpdate Op = "update"
	OpDelete Op = "delete"
)

// Valid reports whether o is one of the operations.
func (o Op) Valid() bool { return o == OpCreate || o == OpUpdate || o == OpDelete }

// Verdict is the outcome of admission.
type Verdict string

// The verdicts.
const (
	Forward    Verdict = "forward"
	Drop       Verdict = "drop"
	Quarantine Verdict = "quarantine"
)

// Reason says why a mutation or delivery was dropped or held.
type Reason string

// The reasons, as the agent API and the console name them.
const (
	ReasonReplay               Reason = "replay"
	ReasonKeyConflict          Reason = "key_conflict"
	ReasonMissingEventID       Reason = "missing_event_id"
	ReasonMalformedTimestamp   Reason = "malformed_timestamp"
	ReasonNoOffset             Reason = "no_offset"
	ReasonLeapSecond           Reason = "leap_second"
	ReasonUnsupportedTimestamp Reason = "unsupported_timestamp"
	ReasonSkew                 Reason = "skew"
	ReasonMalformedBody        Reason = "malformed_body"
	ReasonUnsafeNumber         Reason = "unsafe_number"
	ReasonHashPair             Reason = "hash_pair"
	ReasonOtherRun             Reason = "other_run"
	ReasonUncertainOutcome     Reason = "uncertain_outcome"
	ReasonRolledBack           Reason = "rolled_back"
	ReasonFrozen               Reason = "frozen"
)

// Key is an idempotency key: a digest of the request only, never of the run,
// the session, the attempt or the time (incident 3).
type Key [32]byte

// String is the key as it is sent and shown: 64 hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// ParseKey reads the form that String writes.
func ParseKey(s string) (Key, error) {
	var k Key
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(k) {
		return k, fmt.Errorf("a key is 64 hexadecimal digits: %w", ErrMalformed)
	}
	copy(k[:], b)
	return k, nil
}

// EventRef names an event as its provider does.
type EventRef struct {
	Account    string
	ID         string
	OccurredAt string // as received; judged by ParseTimestamp
}

// Mutation is what an agent wants to change. Body is canonical JSON: an object
// with the whole entity for a create, the changed fields for an update, and
// {} for a delete.
type Mutation struct {
	Op      Op
	Type    string
	ID      string // empty for a create whose target assigns the id
	Subject string // whom it concerns: the client, the container, the debtor
	Body    json.RawMessage
}

// Basis is the version that a mutation was drafted on.
type Basis struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version int64  `json:"version"`
}

// Request is one mutation as an agent asks for it.
type Request struct {
	Integration string
	Event       EventRef
	Effect      string // empty: the event has one effect and closes at once
	Last        bool   // this is the run's last effect for the event
	Agent       string
	Run         string
	Mutation    Mutation
	Basis       *Basis
	Evidence    []string
}

// Decision answers a Request.
type Decision struct {
	Verdict     Verdict
	Reason      Reason // empty for a plain forward
	Key         Key    // the natural key; zero when none can be derived
	State       State  // of the reservation; empty when there is none
	ExternalRef string
	FirstSeen   time.Time
	Item        int64 // quarantine item, 0 when none
	MutationID  int64
	Detail      string // one sentence for the agent's log
}

// Disposition says what became of a delivery.
type Disposition string

// The dispositions.
const (
	Stored      Disposition = "stored"
	Duplicate   Disposition = "duplicate"
	Quarantined Disposition = "quarantined"
)

// Receipt answers a delivery. It is given only after the inbox transaction
// has committed.
type Receipt struct {
	ID          int64 // of the delivery
	EventSeq    int64 // 0 when no event could be identified
	Disposition Disposition
	Reason      Reason
	HandOn      bool // the agent may act on it
	Item        int64
	FirstSeen   time.Time
}

// Integration is one agent path from a source to a target.
type Integration struct {
	ID        string
	Name      string
	Mode      Mode
	Frozen    bool
	MaxSkew   time.Duration
	Version   int64
	UpdatedAt time.Time
	UpdatedBy string
}

// Errors that callers branch on, split by consequence.
var (
	// ErrMalformed: the request cannot be understood; sending it again is no use.
	ErrMalformed = errors.New("malformed request")
	// ErrNotFound: no such integration, key, item or entity.
	ErrNotFound = errors.New("not found")
	// ErrInFlight: the same key is being sent now; ask again shortly.
	ErrInFlight = errors.New("in flight")
	// ErrUnavailable: the store cannot be reached; nothing was forwarded without its row.
	ErrUnavailable = errors.New("storage unavailable")
	// ErrStale: the row has moved since it was seen; look again.
	ErrStale = errors.New("changed since it was seen")
)

// DecidedError reports a lost race: somebody decided before this call.
type DecidedError struct {
	What  string // "Q-17", "R-3", "P-12"
	State string
	By    string
	At    time.Time
}

func (e *DecidedError) Error() string {
	return fmt.Sprintf("%s was already decided (%s) by %s at %s", e.What, e.State, e.By, e.At.Format(time.RFC3339))
}

// Is makes a DecidedError an ErrStale for callers that do not care who won.
func (e *DecidedError) Is(target error) bool { return target == ErrStale }
