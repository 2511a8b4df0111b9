package views

import "time"

// DropsPage lists what was dropped, grouped by event.
type DropsPage struct {
	Page
	Filter Filter
	Rows   []DropRow
	Empty  Empty
	Pager  Pager
	Ack    AckForm
}

// EventPage shows an event: each delivery with its payload and hash, and each
// mutation with what was decided.
type EventPage struct {
	Page
	Crumbs     []Crumb
	Account    string
	Event      string
	OccurredAt string // as received
	Dropped    string // one sentence when something of it was dropped
	Deliveries []DeliveryRow
	Mutations  []MutationRow
	More       string // said when not every mutation is shown
	EventURL   string // of the event's own page, "" on it
	DropURL    string // of its drops, "" when there are none
}

// DeliveryRow is one arrival of an event.
type DeliveryRow struct {
	Name        string // "first delivery"
	ReceivedAt  time.Time
	Mark        Mark
	Disposition string
	Reason      string
	Mode        string
	HandedOn    bool
	Hash        string // SHA-256 of the payload as it came
	SameAsFirst bool
	First       bool
	Payload     string
}

// MutationRow is a mutation in a list.
type MutationRow struct {
	Name       string // "M-12"
	Href       string
	Effect     string
	Operation  string
	Entity     string
	EntityHref string
	Agent      string
	Run        string
	ReceivedAt time.Time
	Decision   string
	Mark       Mark
	State      string
	Ref        string
}
