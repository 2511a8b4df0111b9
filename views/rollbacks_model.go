package views

import "time"

// RollbacksPage lists rollbacks.
type RollbacksPage struct {
	Page
	Rows     []RollbackLine
	Empty    Empty
	Pager    Pager
	NewHref  string
	Disabled string // why the person may not plan one
}

// RollbackLine is a rollback in a list.
type RollbackLine struct {
	Name, Href             string
	Mark                   Mark
	Snapshot, SnapshotHref string
	Suspects               string
	Effect                 string // "312 corrections", "" before the dry run
	CreatedAt              time.Time
	CreatedBy              string
	ApprovedAt             time.Time
	ApprovedBy             string
	Note                   string
}

// RollbackNewPage proposes a rollback.
type RollbackNewPage struct {
	Page
	Crumbs    []Crumb
	Snapshot  SnapshotChoice
	Choices   []SnapshotChoice
	Why       string // why the proposed snapshot is the last good one
	WhyHref   string
	WhyLink   string
	Counts    string // "312 suspects from 312 hash pairs; 0 undecided"
	Earlier   string // pairs that are older than the snapshot
	Suspects  []SuspectRow
	More      string
	Undecided []PairRow
	Action    string
	Shown     int    // suspects proposed
	Seen      string // digest of the suspects proposed
	Note      string
	Left      string // mutations to leave out, as typed
	Error     string
	Conflict  string
	Disabled  string
	Empty     Empty // set when no snapshot can be proposed
}

// SnapshotChoice is a snapshot that a rollback may start from.
type SnapshotChoice struct {
	Name     string
	Seq      int64
	Href     string // choose it
	PageHref string
	TakenAt  time.Time
	Entities string
	Mark     Mark
	Chosen   bool
	Good     bool
	Broken   bool
}

// SuspectRow is a mutation that a rollback would undo.
type SuspectRow struct {
	Name, Href         string
	Value              string // its id in the form
	What               string
	Event              string
	ReceivedAt         time.Time
	Entity, EntityHref string
	Pair, PairHref     string
	Twin, TwinHref     string // the copy that is kept
}
