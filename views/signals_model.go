package views

import "time"

// FigureLife is how long a figure counts as fresh: six heartbeats of the page's
// event stream.
const FigureLife = 90 * time.Second

// Mark is a state as a shape and a word; its colour only repeats them.
type Mark struct {
	Tone string // crit, warn, ok or unk
	Text string
}

// Shape is the sign before the word.
func (m Mark) Shape() string {
	switch m.Tone {
	case "crit":
		return "▲"
	case "warn":
		return "◆"
	case "ok":
		return "●"
	}
	return "?"
}

// SignalRow is one line of "needs attention".
type SignalRow struct {
	ID        string
	Mark      Mark
	Name      string
	Value     string
	Why       string
	Since     time.Time
	CheckedAt time.Time // zero: never read
	Href      string
	LinkText  string
	NoData    bool
}
