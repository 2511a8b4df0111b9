package views

import "time"

// RollbackPage is one rollback: its plan, and what became of it.
type RollbackPage struct {
	Page
	Crumbs      []Crumb
	Name        string
	Heading     string
	Status      RollbackStatus
	Facts       []Fact
	Note        string
	Totals      []string // the plan in words, a sentence each
	TotalsTitle string
	Groups      []RollbackGroup
	Outside     []RollbackGroup // changes that are not ours to undo
	Residue     []RollbackGroup // what cannot be undone
	Decide      []RollbackRow   // rows that somebody else changed, with a choice
	MoreRows    string          // decisions that are not on the page
	Failed      []RollbackRow   // of a stopped rollback
	Approve     ApproveForm
	Actions     RollbackActions
	Moved       []MovedRow // rows that moved, after a refused approval
	MovedWhy    string
	Conflict    string
	Error       string // beside the note of a skip
	Typed       string // that note
	CSV         string
	AuditURL    string
}

// RollbackStatus is the live line about where a rollback stands.
type RollbackStatus struct {
	State    string // the machine's word
	Mark     Mark
	Text     string
	Step     string // what is being done, "" when nothing is
	Done     int
	Total    int // 0 when not known
	Counts   []StateCount
	ReadBack string
	Differ   bool
	Names    []string // entities that differ
	Closed   string   // what a redelivery will meet
	ShowHref string   // the page as it is now, when this one is out of date
	Banner   string   // tone of the whole line, "" for none
}

// StateCount is how many rows are in a state.
type StateCount struct {
	Mark  Mark
	Count string
}

// RollbackGroup is like rows read as one line.
type RollbackGroup struct {
	Key    string
	Href   string
	Text   string // "312 visits removed for 88 clients"
	Fields string
	Counts []StateCount
	Sample RollbackRow
	Count  string
}

// RollbackRow is one line of a plan.
type RollbackRow struct {
	Row        int
	Anchor     string
	Name       string // "visit V-12"
	Href       string
	Subject    string
	Mark       Mark
	Text       string // what happens to it
	By         string // who changed it, of a decision
	Diff       Diff
	Detail     string
	Sent       string
	SentHref   string
	Undoes     []Crumb
	Later      []Crumb // legitimate changes that were drafted on what is undone
	Choice     string  // restore or keep, "" where there is none to make
	ChoiceHref string
	Version    int64
	Disabled   string
	SkipHref   string
}

// ApproveForm is the one click. It is bound to what the page shows.
type ApproveForm struct {
	Show      bool
	Action    string
	Version   int64
	Hash      string
	Button    string // the effect and the count
	Disabled  string
	PlannedAt time.Time
	ExpiresAt time.Time
	Warning   string // what would undo it soon
	WarnHref  string
	WarnLink  string
}

// RollbackActions are the other things to do; an empty URL is one that the
// state does not take.
type RollbackActions struct {
	Cancel, Resume, Replan string
	Version                int64
	Disabled               string
}

// MovedRow is a row that changed between the dry run and the approval.
type MovedRow struct {
	Name    string
	Href    string
	Subject string
	By      string
	At      time.Time
	Diff    Diff
}

// RollbackGroupPage is the rows of one group.
type RollbackGroupPage struct {
	Page
	Crumbs []Crumb
	Group  RollbackGroup
	Rows   []RollbackRow
	Pager  Pager
	Empty  Empty
}

// RollbackUpdate is what an event stream renews on the page of a rollback.
type RollbackUpdate struct {
	Page    Page
	Status  RollbackStatus
	Body    *RollbackPage // the rest, when the state has changed
	Banners []Banner      // the notices of every page, when the state has changed
}

func pressed(on bool) string {
	if on {
		return "true"
	}
	return "false"
}
