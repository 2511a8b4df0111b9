package snapshots

import (
	"encoding/json"
	"fmt"
	"time"

	"sluis/gate"
)

// Snapshot is one sealed state of an integration's world, as the database
// knows it. The evidence itself is in the object store.
type Snapshot struct {
	Integration  string
	Seq          int64
	TakenAt      time.Time // on the gate's clock
	ManifestKey  string
	ManifestHash [32]byte
	PrevHash     [32]byte
	BodyKey      string
	BodyHash     [32]byte
	BodySize     int64
	Entities     int64
	LastMutation int64 // every mutation up to it is inside, none after it
	AuditPos     int64
	AuditHash    [32]byte
	RetainUntil  time.Time // as the store reported it
	VerifiedAt   time.Time
	VerifyError  string // empty: good, or never verified
}

// RollbackState is where a rollback stands.
type RollbackState string

// The states of a rollback.
const (
	RollbackPlanning  RollbackState = "planning"  // the dry run is running
	RollbackReady     RollbackState = "ready"     // waits for approval
	RollbackApproved  RollbackState = "approved"  // approved, about to be applied
	RollbackApplying  RollbackState = "applying"  // rows are being sent
	RollbackStopped   RollbackState = "stopped"   // stopped on a failure: resume or skip
	RollbackApplied   RollbackState = "applied"   // every row done and read back
	RollbackFailed    RollbackState = "failed"    // the dry run failed
	RollbackExpired   RollbackState = "expired"   // too old to approve
	RollbackCancelled RollbackState = "cancelled" // withdrawn by a person, or made stale by rows that moved
)

// Rollback is a plan and what became of it.
type Rollback struct {
	ID            int64
	Integration   string
	SnapshotSeq   int64
	State         RollbackState
	Version       int64
	Hash          [32]byte // over the plan's meaning; what an approval is bound to
	CreatedAt     time.Time
	CreatedBy     string
	PlannedAt     time.Time
	ExpiresAt     time.Time
	ApprovedAt    time.Time
	ApprovedBy    string
	AppliedAt     time.Time
	Error         string
	Note          string
	ProgressStep  string // replay, live, diff, send, readback
	ProgressDone  int
	ProgressTotal int
	Summary       Summary
	ReadBack      *ReadBack // nil until applied
	Suspects      int
}

// Summary is a plan's totals.
type Summary struct {
	Compensations int            `json:"compensations"` // rows that approval would send
	Decisions     int            `json:"decisions"`     // rows that somebody else changed; kept unless chosen otherwise
	Outside       int            `json:"outside"`       // changes outside the gate, not ours to undo
	Residue       int            `json:"residue"`       // what cannot be undone
	LaterKept     int            `json:"later_kept"`    // legitimate mutations after the snapshot that survive
	ByOp          map[string]int `json:"by_op"`         // compensations by op
	Subjects      int            `json:"subjects"`      // distinct subjects concerned
	Checked       int            `json:"checked"`       // live entities compared
}

// ReadBack is the comparison after apply.
type ReadBack struct {
	At       time.Time `json:"at"`
	Compared int       `json:"compared"`
	Differ   int       `json:"differ"`
	Names    []string  `json:"names"` // the first entities that differ
}

// RowKind says what a row of a plan is.
type RowKind string

// The kinds of row.
const (
	RowCompensation RowKind = "compensation" // live = base: undo it
	RowDecision     RowKind = "decision"     // live ≠ base: keep by default
	RowOutside      RowKind = "outside"      // changed outside the gate, no suspect: shown, kept
	RowResidue      RowKind = "residue"      // cannot be undone
)

// RowState is where a row stands.
type RowState string

// The states of a row.
const (
	RowPlanned  RowState = "planned"
	RowSending  RowState = "sending"
	RowApplied  RowState = "applied"
	RowVerified RowState = "verified"
	RowFailed   RowState = "failed"
	RowSkipped  RowState = "skipped"
)

// Row is one line of a plan.
type Row struct {
	Rollback     int64
	Row          int
	Kind         RowKind
	GroupKey     string
	Op           gate.Op // "none" for outside and residue rows
	EntityType   string
	EntityID     string
	Subject      string
	Body         json.RawMessage // what would be sent
	Base         json.RawMessage // what we believe; nil: absent
	Expected     json.RawMessage // what should be; nil: absent
	Live         json.RawMessage // what the target has; nil: absent
	LiveVersion  int64
	LiveBy       string
	LiveAt       time.Time
	Choice       string // restore or keep
	Undoes       []int64
	Contaminated []int64
	State        RowState
	MutationID   int64
	Detail       string
	DoneAt       time.Time
}

// Group is like rows read as one line.
type Group struct {
	Key      string
	Kind     RowKind
	Op       gate.Op
	Type     string
	Count    int
	Subjects int
	Fields   []string // changed fields, for updates
	Sample   Row
	ByState  map[RowState]int
}

// Suspect is a mutation that a plan would undo, and why it is proposed.
type Suspect struct {
	Mutation gate.MutationRecord
	PairID   int64
	Source   string // pair, range, run, selection
	Twin     int64  // the mutation id of the copy that is kept
}

// Proposal is what the console proposes before a dry run.
type Proposal struct {
	Snapshot  Snapshot
	Suspects  []Suspect
	Undecided []gate.Pair // both copies were touched: a person has to say which
	Earlier   int         // pairs older than the snapshot, not proposed
}

// PlanRequest asks for a dry run.
type PlanRequest struct {
	Integration string
	SnapshotSeq int64
	Mutations   []Suspect // only Mutation.ID, PairID and Source are read
	Note        string
}

// Moved is a row that changed between plan and approval.
type Moved struct {
	Row        int
	EntityType string
	EntityID   string
	Subject    string
	Was, Is    json.RawMessage // nil: absent
	By         string
	At         time.Time
}

// MovedError refuses an approval and names the rows that moved.
type MovedError struct {
	Rollback int64
	Rows     []Moved
}

// Error names how many rows moved and the first of them.
func (e *MovedError) Error() string {
	return fmt.Sprintf("R-%d: %d rows moved since the dry run, %s %s first", e.Rollback, len(e.Rows), e.Rows[0].EntityType, e.Rows[0].EntityID)
}

// Is makes a MovedError a gate.ErrStale.
func (e *MovedError) Is(target error) bool { return target == gate.ErrStale }
