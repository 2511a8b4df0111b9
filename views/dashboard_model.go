package views

import "time"

// DashboardPage is the first page: what needs attention now.
type DashboardPage struct {
	Page
	Summary  string // "2 act now, 1 check"
	Signals  []SignalRow
	Mode     IntegrationMode
	Ack      AckForm
	Drops    []DropRow
	DropsURL string
	NoDrops  Empty // shown when Drops is empty
	Items    []ItemRow
	ItemsURL string
	NoItems  Empty
}

// IntegrationMode says what the gate does for the integration.
type IntegrationMode struct {
	Known  bool
	Text   string // "enforce: decisions are carried out"
	Frozen bool
	Href   string
}

// AckForm acknowledges the drops seen so far in the person's own name.
type AckForm struct {
	Action   string
	UpTo     int64
	Count    string
	Needed   bool // there is something to acknowledge
	Disabled string
	Person   string
	Note     string
	AckedBy  string
	AckedAt  time.Time
}

// DropRow is the drops of one event for one reason.
type DropRow struct {
	ID           string // of the row in the page
	Event        string
	Account      string
	Href         string
	Reason       string
	Effects      string // "312 effects, 1 delivery"
	FirstAt      time.Time
	LastAt       time.Time
	FirstSeen    time.Time
	Enforced     bool
	Mode         string
	Acknowledged bool
}
