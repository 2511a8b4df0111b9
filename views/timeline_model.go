package views

import "time"

// TimelineEntry is one thing that happened: who, what, when, and where to read
// more.
type TimelineEntry struct {
	At    time.Time
	Actor string
	Text  string // already in the person's language
	Note  string // what the person wrote
	Href  string // "" for none
	Link  string // text of the link
}
