package trace

import (
	"encoding/json"
	"fmt"
	"time"

	"sluis/gate"
)

// The organisation of the trace. All names are fictional.
const (
	account     = "merwezorg"
	integration = "care"
	zone        = "Europe/Amsterdam"

	nurseCount  = 24
	clientCount = 88
	mornings    = 8 // stops before noon on a full day
	afternoons  = 5 // stops after noon on a full day

	boardDay = "2025-10-29"
	firstDay = "2025-10-25"
	planDays = 14
)

var (
	traceFrom = time.Date(2025, 10, 25, 20, 0, 0, 0, time.UTC)
	traceTo   = time.Date(2025, 10, 29, 5, 40, 0, 0, time.UTC)
)

var nurses = [nurseCount]string{
	"Aaltje Postma", "Bram Kuipers", "Chantal Meijer", "Dilan Yildiz", "Emma de Graaf", "Fatima El Idrissi",
	"Greet Hoekstra", "Hanna Vermeulen", "Ilse Brouwer", "Joost van Dam", "Karin Smeets", "Lotte Dijkstra",
	"Marleen Bos", "Nadia Chaouch", "Oda Willems", "Petra Schouten", "Quinten Maas", "Rianne Koster",
	"Saskia Blom", "Tineke Evers", "Ursula Prins", "Vera van Loon", "Wilma Hendriks", "Yvonne Peeters",
}

var surnames = [...]string{
	"Aalbers", "Bakker", "Claassen", "Driessen", "Engels", "Faber", "Gerritsen", "Haan", "Ivens", "Jansma", "Kok",
}

var activities = [...]string{
	"personal care", "medication", "wound care", "compression stockings", "insulin", "breakfast and medication",
	"eye drops", "catheter care",
}

var notes = [...]string{
	"", "Key safe beside the back door.", "Ring twice; hard of hearing.", "", "Partner present until ten.", "Dog in the kitchen.", "",
}

func clientID(i int) string { return fmt.Sprintf("C-%03d", i%clientCount+1) }

func routeID(n int) string { return fmt.Sprintf("R-%02d", n+1) }

// offset is the zone's offset during the hours of visits on a day: summer
// time ends in the night before 2025-10-26.
func offset(day string) string {
	if day < "2025-10-26" {
		return "+02:00"
	}
	return "+01:00"
}

// clock writes minutes after midnight on a day, with its offset.
func clock(day string, minutes int) string {
	return fmt.Sprintf("%sT%02d:%02d:00%s", day, minutes/60, minutes%60, offset(day))
}

func dayAt(i int) string {
	d, _ := time.Parse(time.DateOnly, firstDay) // a constant
	return d.AddDate(0, 0, i).Format(time.DateOnly)
}

// visit is stop s (from 0) of nurse n's day; shift moves the clients along, so
// that days differ.
func visit(day string, n, s, shift int) Visit {
	begin := 7*60 + 35*s + n%4*5
	if s >= mornings {
		begin = 13*60 + 75*(s-mornings) + n%4*5
	}
	client := 4*n + s
	if s >= mornings {
		client = 4*n + 40 + 3*(s-mornings)
	}
	return Visit{
		Client: clientID(client + shift), Nurse: nurses[n], Route: routeID(n), Stop: s + 1, Day: day,
		Start: clock(day, begin), End: clock(day, begin+30),
		Activity: activities[(n+s+shift)%len(activities)], Note: notes[(3*n+s+shift)%len(notes)],
	}
}

// fixedStops are the stops of nurse n that are planned two weeks ahead: three
// mornings and one or two afternoons, 115 a day in all.
func fixedStops(n int) []int {
	if n%5 == 4 || n == nurseCount-1 {
		return []int{0, 1, 2, 8}
	}
	return []int{0, 1, 2, 8, 9}
}

// seed is the record system at the start: the clients, and the published plan
// without the board's day.
func seed() []Entity {
	at := time.Date(2025, 10, 24, 14, 0, 0, 0, time.UTC)
	const by = "planner/m.dekker"
	var out []Entity
	for i := range clientCount {
		out = append(out, Entity{"client", clientID(i), 1, canonical(client{
			Name:     fmt.Sprintf("%c. %s", 'A'+i%26, surnames[i%len(surnames)]),
			DoorCode: fmt.Sprintf("%04d", (i*7919+1301)%10000),
			Since:    fmt.Sprintf("20%02d-%02d-01", 19+i%6, i%12+1),
		}), at, by})
	}
	id := 0
	for d := range planDays {
		day := dayAt(d)
		if day == boardDay {
			continue
		}
		for n := range nurseCount {
			for stop, s := range fixedStops(n) {
				v := visit(day, n, s, 7*d)
				v.Stop = stop + 1
				id++
				out = append(out, Entity{"visit", fmt.Sprintf("V-%06d", id), 1, canonical(v), at, by})
			}
		}
	}
	return out
}

// client is the state of a client in the record system.
type client struct {
	Name     string `json:"name"`
	DoorCode string `json:"door_code"`
	Since    string `json:"since"`
}

// boardRoster is the board's day as the roster has it once the planner has
// swapped the nurses of two routes in the night.
func boardRoster(one, other int) *Roster {
	r := &Roster{Day: boardDay}
	for n := range nurseCount {
		driver := n
		switch n {
		case one:
			driver = other
		case other:
			driver = one
		}
		route := Route{Route: routeID(n), Nurse: nurses[driver]}
		for s := range mornings + afternoons {
			v := visit(boardDay, n, s, 0)
			v.Nurse = route.Nurse
			route.Visits = append(route.Visits, v)
		}
		r.Routes = append(r.Routes, route)
	}
	return r
}

// encode is the JSON of a value that is ours and cannot fail to be written.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// canonical is encode in the gate's canonical form.
func canonical(v any) json.RawMessage {
	raw, err := gate.Canonical(encode(v), maxLine)
	if err != nil {
		panic(err)
	}
	return raw
}
