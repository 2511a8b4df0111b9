package views

import "time"

// SnapshotsPage is the timeline of snapshots, newest first.
type SnapshotsPage struct {
	Page
	Rows     []SnapshotLine
	Empty    Empty
	Pager    Pager
	Chain    SnapshotChain
	Why      string // which is the last good one, and why
	WhyHref  string
	WhyLink  string
	GoodHref string // plan from the last good one, "" when there is none
	Take     string
	Verify   string
	Disabled string
}

// SnapshotChain is how the chain stands; it is live.
type SnapshotChain struct {
	Mark       Mark
	Text       string
	VerifiedAt time.Time
}

// SnapshotLine is a snapshot in the timeline.
type SnapshotLine struct {
	Name        string
	Seq         int64
	Href        string
	TakenAt     time.Time
	Entities    string
	Change      string // against the one before
	Size        string
	Hash        string
	LockedUntil time.Time
	VerifiedAt  time.Time
	Mark        Mark
	Good        bool
	PlanHref    string
}

// SnapshotPage is one snapshot.
type SnapshotPage struct {
	Page
	Crumbs    []Crumb
	Name      string
	Mark      Mark
	Finding   string // what the verification found wrong
	Facts     []Fact
	Positions []Fact
	Receipts  []Fact
	PlanHref  string
	Older     string
	Newer     string
}
