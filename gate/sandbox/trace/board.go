package trace

import (
	"cmp"
	"encoding/json"
	"strings"

	"sluis/gate"
)

// Figures are what the board shows for one day.
type Figures struct {
	Visits        int
	MaxBeforeNoon int    // the most distinct clients that one nurse has before noon
	Nurse         string // whose that is; the first by name of several
}

// Board counts the visits of a day (2006-01-02). Noon is that of the offset in
// which a visit's start is written.
func Board(entities []gate.Entity, day string) Figures {
	var f Figures
	clients := map[string]map[string]bool{}
	for _, e := range entities {
		var v Visit
		if e.Type != "visit" || json.Unmarshal(e.State, &v) != nil || v.Day != day {
			continue
		}
		f.Visits++
		if _, at, ok := strings.Cut(v.Start, "T"); ok && at < "12" {
			if clients[v.Nurse] == nil {
				clients[v.Nurse] = map[string]bool{}
			}
			clients[v.Nurse][v.Client] = true
		}
	}
	for nurse, of := range clients {
		if n := len(of); n > f.MaxBeforeNoon || n == f.MaxBeforeNoon && nurse < f.Nurse {
			f.MaxBeforeNoon, f.Nurse = n, nurse
		}
	}
	return f
}

func byID(a, b gate.Entity) int { return cmp.Compare(a.ID, b.ID) }
