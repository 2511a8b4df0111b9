package views

import "time"

// ItemPage is one held mutation or delivery with its evidence and decision.
type ItemPage struct {
	Page
	Crumbs   []Crumb
	Name     string
	Position string // "3 of 37", empty for one that is not open
	Heading  string // "create visit for client C-12"
	Mark     Mark
	OpenedAt time.Time
	Reason   string
	Todo     string // what to do about the reason
	Detail   string // the gate's own sentence
	Facts    []Fact
	Payload  string // of the event, "" when there is none to show
	Diff     Diff
	DiffNote string
	Twin     *TwinView
	Timeline []TimelineEntry
	Decision DecisionForm
	Decided  *Decided // the item that was decided just before this page
	Status   ItemStatus
	NextHref string // the next open item, "" when there is none
	Conflict string // a lost race: who decided what and when
}

// Fact is one line of evidence.
type Fact struct {
	Name string
	Text string
	Href string
	Mono bool
}

// TwinView is the earlier mutation that this is a repeat of.
type TwinView struct {
	Name  string
	Href  string
	Text  string
	At    time.Time
	State string
}

// DecisionForm asks for the note and the decision.
type DecisionForm struct {
	Show        bool
	Release     string // action URLs
	Reject      string
	Version     int64
	Fingerprint string
	Note        string
	Error       string
	Disabled    string // why the buttons do nothing, e.g. the role
}

// ItemStatus is the live line about where the item stands.
type ItemStatus struct {
	ID         int64
	Mark       Mark
	Text       string
	Note       string
	Releasing  bool
	ReleaseAt  time.Time
	UndoAction string
	Version    int64
	CanUndo    bool
	Final      string // after a release: only a compensation is possible
	PlanHref   string
	SentHref   string
	SentName   string
}
