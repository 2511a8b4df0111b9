package views

import "time"

// InFlightPage lists reservations whose outcome is not recorded.
type InFlightPage struct {
	Page
	Tabs   []Tab
	Filter Filter
	Rows   []InFlightRow
	Empty  Empty
	Pager  Pager
}

// InFlightRow is one reservation that is in flight or uncertain.
type InFlightRow struct {
	RowID      string
	Name       string // "M-12"
	Href       string
	What       string
	Mark       Mark
	ReservedAt time.Time
	Attempt    string
	Key        string
	Detail     string // what the last look said
	Next       string // what happens next
	Settle     *SettleForm
}

// SettleForm is a person's word, with evidence, on an outcome that cannot be
// looked up.
type SettleForm struct {
	ID       string // "12"
	Action   string
	Version  int64
	Applied  string // "yes", "no" or nothing chosen yet
	Ref      string
	Note     string
	Error    string
	Disabled string
	Open     bool
}
