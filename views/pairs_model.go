package views

import "time"

// PairsPage lists hash pairs.
type PairsPage struct {
	Page
	Tabs     []Tab
	Rows     []PairRow
	Empty    Empty
	Pager    Pager
	Scan     ScanForm
	PlanHref string // plan a rollback, "" when no pair is open or doubled
	PlanText string
}

// PairRow is a hash pair in a list.
type PairRow struct {
	Name     string // "P-4"
	Href     string
	Mark     Mark
	Subject  string
	What     string
	First    string // the event of each copy
	FirstAt  time.Time
	Second   string
	SecondAt time.Time
	Decided  string
}

// ScanForm asks for a scan and tells of the last one.
type ScanForm struct {
	Action   string
	LastAt   time.Time
	Result   string // "312 pairs found", "" when not known
	Failed   bool   // the last scan cannot be read
	Disabled string
}

// PairPage shows a pair side by side.
type PairPage struct {
	Page
	Crumbs   []Crumb
	Name     string
	Heading  string
	Mark     Mark
	Decided  string
	Note     string
	Position string
	Gap      string // time between the copies
	Copies   []CopyView
	Diff     Diff
	Verdict  VerdictForm
	Conflict string
	PlanHref string
	Timeline []TimelineEntry
}

// CopyView is one of the two mutations.
type CopyView struct {
	Name       string
	Href       string
	Heading    string
	Facts      []Fact
	ReceivedAt time.Time
	Touched    string // how many later changes touched it
}

// VerdictForm asks whether the two are one intent.
type VerdictForm struct {
	Show     bool
	Action   string
	Version  int64
	Note     string
	Error    string
	Disabled string
}
