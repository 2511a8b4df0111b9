package views

import "time"

// HistoryPage searches entities.
type HistoryPage struct {
	Page
	Filter Filter
	Rows   []EntityRow
	Empty  Empty
	Pager  Pager
}

// EntityRow is an entity in a list.
type EntityRow struct {
	RowID     string
	Name      string // "visit V-12"
	Href      string
	Subject   string
	Version   string
	Deleted   bool
	UpdatedAt time.Time
}

// EntityPage is the history of one entity, the newest step first.
type EntityPage struct {
	Page
	Crumbs  []Crumb
	Name    string
	Known   bool // the projection holds it
	Facts   []Fact
	Now     Diff // its state as one column
	Deleted bool
	Steps   []StepView
	More    string
}

// StepView is one mutation of the entity: who, when, why, before and after.
type StepView struct {
	Name       string // "M-12"
	Href       string
	ReceivedAt time.Time
	Text       string // "agent planner, event E-1"
	EventHref  string
	Event      string
	Mark       Mark
	State      string
	Rollback   string // "R-3", when it is a compensation
	RollHref   string
	Diff       Diff
	Note       string
	Applied    bool
}

// MutationPage is one mutation.
type MutationPage struct {
	Page
	Crumbs   []Crumb
	Name     string
	Heading  string
	Mark     Mark
	State    string
	Facts    []Fact
	Body     Diff
	Evidence []string
	Timeline []TimelineEntry
	Note     string // what the person wrote when they lost a race
	Conflict string
}
