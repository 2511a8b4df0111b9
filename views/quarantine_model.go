package views

import "time"

// QuarantinePage lists held mutations and deliveries.
type QuarantinePage struct {
	Page
	Tabs    []Tab
	Filter  Filter
	Rows    []ItemRow
	Empty   Empty
	Pager   Pager
	Decided *Decided // the item that was decided just before this page
	Bulk    BulkForm
	ShowNew string // URL of this list with what came since
}

// Tab is a saved filter with its count.
type Tab struct {
	Text    string
	Count   string
	Href    string
	Current bool
}

// ItemRow is a held mutation or delivery in a list.
type ItemRow struct {
	RowID    string // of the row in the page
	Name     string // "Q-17"
	Href     string
	Value    string // "17:3", id and version, of its checkbox
	Open     bool   // it can be chosen
	Mark     Mark
	State    string
	Reason   string
	What     string // "create visit for client C-12"
	Subject  string
	OpenedAt time.Time
	Decided  string // "rejected by anna"
}

// BulkForm decides many items with one note.
type BulkForm struct {
	Action    string
	Hidden    []Param // the filter, for "all that match"
	Cutoff    int64   // highest id when the page was rendered: what came later is not included
	Matching  int64
	ShowAll   bool // more match than are shown
	Note      string
	Error     string
	Disabled  string // why nothing can be decided
	Available bool   // there is something to decide
}

// BulkPage is the result of deciding many, item by item.
type BulkPage struct {
	Page
	Crumbs  []Crumb
	Done    string // "12 released"
	Skipped string // "2 skipped"
	Later   string // "4 new, not included"
	Results []BulkResult
	Back    string
}

// BulkResult is what became of one item.
type BulkResult struct {
	Name string
	Href string
	Mark Mark
	Text string // with the reason where it was skipped
}

// Decided is the line about the item that was decided last, with its undo while
// a release waits.
type Decided struct {
	ID         int64
	Name       string
	Href       string
	Mark       Mark
	Text       string
	Releasing  bool
	ReleaseAt  time.Time
	UndoAction string
	Version    int64
	CanUndo    bool
}

// QuarantineUpdate is what an event stream renews on the list and on an item's
// page.
type QuarantineUpdate struct {
	Page      Page
	CountsNew bool
	New       int64
	ShowNew   string
	Rows      []ItemRow
	Decided   *Decided
	Status    *ItemStatus
}
