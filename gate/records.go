package gate

import (
	"encoding/json"
	"time"
)

// MutationRecord is one mutation as it was asked for, with what was decided
// and where its reservation stands.
type MutationRecord struct {
	ID          int64
	Integration string
	Event       EventRef
	Effect      string
	Agent       string
	Run         string
	Mutation    Mutation
	Fingerprint [32]byte
	Basis       *Basis
	Evidence    []string
	ReceivedAt  time.Time
	Mode        Mode
	Verdict     Verdict
	Reason      Reason
	Forwarded   bool
	RollbackID  int64 // of the rollback that it is a compensation of, else 0
	RollbackRow int
	NaturalKey  Key // zero when none could be derived

	// The reservation; State is empty where the mutation was never forwarded.
	Key         Key
	State       State
	Attempt     int
	Fence       int64
	Version     int64
	ReservedAt  time.Time
	SettledAt   time.Time
	SettledBy   string
	ExternalRef string
	Detail      string
}

// EntityID is the id that the target knows the entity by: the one that was
// asked for, or the one that the target assigned.
func (m MutationRecord) EntityID() string {
	if m.Mutation.ID != "" {
		return m.Mutation.ID
	}
	return m.ExternalRef
}

// DeliveryRecord is one arrival of an event.
type DeliveryRecord struct {
	ID          int64
	Integration string
	EventSeq    int64
	Event       EventRef
	Kind        string
	ReceivedAt  time.Time
	Payload     []byte
	Mode        Mode
	Disposition Disposition
	Reason      Reason
	HandedOn    bool
}

// InboxEvent is a stored event as an agent pulls it.
type InboxEvent struct {
	Seq        int64
	Event      EventRef
	Kind       string
	ReceivedAt time.Time
	Payload    json.RawMessage
}

// ItemState is where a quarantine item stands.
type ItemState string

// The states of a quarantine item.
const (
	ItemOpen       ItemState = "open"
	ItemReleasing  ItemState = "releasing"
	ItemReleased   ItemState = "released"
	ItemRejected   ItemState = "rejected"
	ItemSuperseded ItemState = "superseded"
)

// Item is a held mutation or delivery that waits for a person.
type Item struct {
	ID          int64
	Integration string
	Reason      Reason
	Detail      string
	Subject     string
	State       ItemState
	Version     int64
	Fingerprint [32]byte // of what the person sees; zero for a delivery that cannot be parsed
	OpenedAt    time.Time
	DecidedAt   time.Time // zero while open
	DecidedBy   string
	Note        string
	ReleaseAt   time.Time // when a releasing item is sent
	Outcome     string    // after a release: what the target said
	RollbackID  int64     // of the rollback that blocks it, else 0
	ReleasedAs  int64     // mutation id that the release was sent as, else 0

	Mutation *MutationRecord // exactly one of Mutation and Delivery is set
	Delivery *DeliveryRecord
	Twin     *MutationRecord // the earlier mutation that it is a repeat of, where there is one
	Current  *Projected      // what the projection holds for the entity now
}

// ItemFilter selects quarantine items, newest first.
type ItemFilter struct {
	Integration string
	States      []ItemState // empty: all
	Reason      Reason      // empty: all
	Search      string      // event id, subject or entity id, exact
	Before      int64       // keyset: ids below it; 0 for the first page
	UpTo        int64       // cutoff: ids up to it; 0 for none
	Limit       int         // 1 to 500; 0 means 50
}

// PairState is the verdict on a hash pair.
type PairState string

// The states of a hash pair.
const (
	PairOpen      PairState = "open"
	PairDuplicate PairState = "duplicate" // the same intent twice
	PairDistinct  PairState = "distinct"  // two legitimate mutations
	PairUndone    PairState = "undone"    // a rollback removed one copy
)

// Pair is two applied mutations with the same content for the same subject
// within the window (incident 1, rule d).
type Pair struct {
	ID          int64
	Integration string
	Subject     string
	FoundAt     time.Time
	State       PairState
	Version     int64
	DecidedAt   time.Time
	DecidedBy   string
	Note        string
	RollbackID  int64
	First       MutationRecord
	Second      MutationRecord
	// How many later applied mutations touched the entity of each copy.
	FirstTouched, SecondTouched int
}

// PairFilter selects hash pairs, newest first.
type PairFilter struct {
	Integration string
	States      []PairState
	AfterSeq    int64 // only pairs whose second mutation came after it
	Before      int64
	Limit       int // 0 means 50; -1 means all
}

// ScanResult is what a hash-pair scan did.
type ScanResult struct {
	From, To int64 // mutation ids covered: (From, To]
	Found    int   // new pairs
}

// Projected is our versioned record of an entity.
type Projected struct {
	Integration   string
	Type, ID      string
	Version       int64
	TargetVersion int64
	State         json.RawMessage
	Deleted       bool
	Subject       string
	LastMutation  int64
	UpdatedAt     time.Time
}

// DropGroup is the drops of one event for one reason: a redelivered event with
// 312 effects reads as one row.
type DropGroup struct {
	Account, EventID string
	Reason           Reason
	Mode             Mode
	Enforced         bool // false in shadow: it was forwarded all the same
	Deliveries       int
	Mutations        int
	FirstAt, LastAt  time.Time
	LastID           int64 // highest decision id in the group
	FirstSeen        time.Time
	Acknowledged     bool
}

// Level is how urgent a signal is.
type Level string

// The levels of a signal, most urgent first.
const (
	LevelAct    Level = "act"    // act now: the only red one
	LevelCheck  Level = "check"  // look when you can
	LevelOK     Level = "ok"     // in range
	LevelNoData Level = "nodata" // the figure is stale or could not be read: never green
)

// The signals of the dashboard.
const (
	SignalDrops      = "drops"
	SignalQuarantine = "quarantine"
	SignalInFlight   = "in_flight"
	SignalPairs      = "hash_pairs"
	SignalReplay     = "replay_ratio"
	SignalSnapshot   = "snapshot"
	SignalClock      = "clock"
)

// Signal is one row of the dashboard.
type Signal struct {
	ID        string
	Level     Level
	Count     int64         // for counts
	Ratio     float64       // for replay_ratio: 0.02 is 2 %
	Age       time.Duration // for ages: the oldest row, the last snapshot, the clock's offset
	Why       string        // message id below "signal.<ID>.", such as "above_zero"
	WhyArgs   map[string]any
	Since     time.Time // when it entered this level; zero when not known
	CheckedAt time.Time
	UpTo      int64 // highest id counted: what an acknowledgement covers
	AckedBy   string
	AckedAt   time.Time
}

// Compensation is one corrective mutation of an approved rollback.
type Compensation struct {
	Integration string
	RollbackID  int64
	Row         int
	PlanHash    [32]byte
	Mutation    Mutation
	IfVersion   *int64 // the live version that the planner approved
}

// Reconciled is what one round of reconciliation did.
type Reconciled struct {
	Looked    int
	Committed int
	Refused   int
	Unknown   int
	Manual    int
}
