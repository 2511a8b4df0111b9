package trace

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"sluis/gate"
)

// The kinds of roster webhook that the agent acts on.
const (
	kindSwap   = "routes.swapped"
	kindTime   = "visit.time_changed"
	kindCancel = "visit.cancelled"
	kindIll    = "nurse.ill"
	kindIntake = "client.intake"
)

// webhook is a roster event as the provider writes it, in this order.
type webhook struct {
	EventID    string `json:"event_id,omitempty"`
	Account    string `json:"account"`
	Kind       string `json:"kind"`
	OccurredAt string `json:"occurred_at"`
	By         string `json:"by"`
	Data       any    `json:"data"`
}

// stopRef names one stop of a route on a day.
type stopRef struct {
	Day   string `json:"day"`
	Route string `json:"route"`
	Stop  int    `json:"stop"`
}

// swapData: the planner swaps stops From to To of two routes. Publishes names
// the day whose board goes out with it.
type swapData struct {
	Day       string    `json:"day"`
	Routes    [2]string `json:"routes"`
	Nurses    [2]string `json:"nurses"` // of the two routes before the swap
	From      int       `json:"from"`
	To        int       `json:"to"`
	Publishes string    `json:"publishes,omitempty"`
}

type timeData struct {
	Visit stopRef `json:"visit"`
	Start string  `json:"start"`
	End   string  `json:"end"`
}

type cancelData struct {
	Visit  stopRef `json:"visit"`
	Reason string  `json:"reason"`
}

// illData: stops From to To of an ill nurse go to the others in turn.
type illData struct {
	Day   string   `json:"day"`
	Route string   `json:"route"`
	From  int      `json:"from"`
	To    int      `json:"to"`
	Cover []string `json:"cover"` // nurses
}

type intakeData struct {
	Client string  `json:"client"`
	State  client  `json:"state"`
	Visits []Visit `json:"visits"`
}

// recorder collects steps; the times of its calls are local to a day.
type recorder struct {
	trace Trace
}

// utc is a local time of day, as an instant.
func utc(day, at string) time.Time {
	t, err := time.Parse(time.RFC3339, day+"T"+at+offset(day))
	if err != nil {
		panic(err) // a constant of this package
	}
	return t.UTC()
}

// eventID is how the provider names the event of an instant.
func eventID(at time.Time) string { return at.Format("evt-20060102-150405") }

// deliver records a webhook that arrives two to five seconds after it happened.
func (r *recorder) deliver(day, at, kind, by string, data any) {
	occurred := utc(day, at)
	raw := string(encode(webhook{
		EventID: eventID(occurred), Account: account, Kind: kind,
		OccurredAt: day + "T" + at + offset(day), By: by, Data: data,
	}))
	late := time.Duration(2+occurred.Second()%4) * time.Second
	r.step(Step{Kind: KindDeliver, At: occurred.Add(late), Raw: &raw})
}

func (r *recorder) step(s Step) { r.trace.Steps = append(r.trace.Steps, s) }

func (r *recorder) note(at time.Time, text string) { r.step(Step{Kind: KindNote, At: at, Note: text}) }

// edit records a change by hand.
func (r *recorder) edit(day, at, typ, by string, match map[string]any, set any) {
	e := &Edit{Type: typ, Match: map[string]json.RawMessage{}, Set: canonical(set), By: by}
	for k, v := range match {
		e.Match[k] = canonical(v)
	}
	r.step(Step{Kind: KindEdit, At: utc(day, at), Edit: e})
}

// finish puts the steps in order of time.
func (r *recorder) finish() *Trace {
	slices.SortStableFunc(r.trace.Steps, func(a, b Step) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	for i := range r.trace.Steps {
		r.trace.Steps[i].Line = i + 2
	}
	return &r.trace
}

// CareIncident is the care incident, built anew; the committed file holds the
// same.
func CareIncident() *Trace {
	r := &recorder{trace: Trace{Meta: Meta{"care-incident", integration, zone, traceFrom, traceTo, boardDay}}}
	r.step(Step{Kind: KindSeed, At: traceFrom, Seed: seed()})
	r.quiet()
	r.night()
	r.monday()
	r.byHand()
	return r.finish()
}

// quiet records webhooks that need no change.
func (r *recorder) quiet() {
	for _, q := range []struct{ day, at, nurse string }{
		{"2025-10-25", "22:14:09", nurses[3]}, {"2025-10-25", "23:41:50", nurses[18]},
		{"2025-10-26", "09:02:31", nurses[6]}, {"2025-10-26", "17:45:12", nurses[11]},
		{"2025-10-27", "07:02:44", nurses[0]}, {"2025-10-27", "12:31:18", nurses[21]},
		{"2025-10-28", "16:20:05", nurses[9]}, {"2025-10-28", "21:08:37", nurses[14]},
	} {
		r.deliver(q.day, q.at, "shift.confirmed", q.nurse, map[string]string{"nurse": q.nurse})
	}
}

// night records the swap that publishes Wednesday, and the same bytes again in
// the repeated hour.
func (r *recorder) night() {
	const one, other = 18, 19
	first := time.Date(2025, 10, 26, 0, 47, 2, 0, time.UTC)
	r.step(Step{Kind: KindRoster, At: first.Add(-4 * time.Second), Roster: boardRoster(one, other)})
	raw := string(encode(webhook{
		EventID: eventID(first.Add(-2 * time.Second)), Account: account, Kind: kindSwap,
		OccurredAt: "2025-10-26T02:47:00+02:00", By: "planner/m.dekker",
		Data: swapData{
			Day: boardDay, Routes: [2]string{routeID(one), routeID(other)}, Nurses: [2]string{nurses[one], nurses[other]},
			From: 1, To: mornings + afternoons, Publishes: boardDay,
		},
	}))
	again := first.Add(26 * time.Minute)
	r.note(first.Add(-time.Second), "02:47 +02:00: a planner swaps two routes; Wednesday's board goes out with it.")
	r.step(Step{Kind: KindDeliver, At: first, Raw: &raw})
	r.note(again.Add(-time.Second), "02:13 +01:00, 26 minutes later: the provider delivers the same event again.")
	r.step(Step{Kind: KindDeliver, At: again, Raw: &raw, Expect: &Expect{gate.Duplicate, gate.ReasonReplay}})
}

// monday records the eighteen further events. What they do to Wednesday leaves
// its number of visits as it is: cancellations and the intake's visits are on
// other days. No pair of copies is touched by more than one of them.
func (r *recorder) monday() {
	const monday, tuesday, thursday, friday, saturday = "2025-10-27", "2025-10-28", "2025-10-30", "2025-10-31", "2025-11-01"
	swap := func(day string, a, b, from, to int) swapData {
		return swapData{Day: day, Routes: [2]string{routeID(a - 1), routeID(b - 1)},
			Nurses: [2]string{nurses[a-1], nurses[b-1]}, From: from, To: to}
	}
	moved := func(day string, route, stop, begin int) timeData {
		return timeData{stopRef{day, routeID(route - 1), stop}, clock(day, begin), clock(day, begin+30)}
	}
	cancelled := func(day string, route, stop int, why string) cancelData {
		return cancelData{stopRef{day, routeID(route - 1), stop}, why}
	}
	for _, e := range []struct {
		at, kind string
		data     any
	}{
		{"07:12:20", kindTime, moved(boardDay, 5, 3, 8*60+50)},
		{"07:40:02", kindCancel, cancelled(tuesday, 16, 2, "admitted to hospital")},
		{"08:05:31", kindSwap, swap(boardDay, 7, 8, 5, 8)},
		{"08:31:47", kindTime, moved(thursday, 10, 1, 9*60+15)},
		{"08:58:10", kindTime, moved(boardDay, 3, 10, 15*60+20)},
		{"09:20:36", kindIntake, intake(thursday, friday, saturday, "2025-11-03")},
		{"09:47:55", kindIll, illData{boardDay, routeID(10), 9, 13, []string{nurses[11], nurses[12]}}},
		{"10:15:08", kindSwap, swap(tuesday, 2, 9, 2, 3)},
		{"10:42:27", kindCancel, cancelled(friday, 21, 1, "family visits")},
		{"11:10:49", kindTime, moved(boardDay, 20, 2, 8*60+5)},
		{"11:35:14", kindIll, illData{tuesday, routeID(4), 1, 4, []string{nurses[5], nurses[6], nurses[3]}}},
		{"13:02:58", kindSwap, swap(boardDay, 17, 22, 9, 11)},
		{"13:28:33", kindTime, moved(boardDay, 1, 12, 17*60+30)},
		{"13:55:06", kindCancel, cancelled(thursday, 13, 4, "appointment at the hospital")},
		{"14:20:41", kindSwap, swap(thursday, 4, 18, 2, 3)},
		{"14:51:29", kindTime, moved(saturday, 23, 2, 8*60+40)},
		{"15:30:17", kindTime, moved(boardDay, 24, 10, 15*60+5)},
		{"16:44:52", kindCancel, cancelled(tuesday, 12, 3, "staying with her daughter")},
	} {
		r.deliver(monday, e.at, e.kind, "planner/m.dekker", e.data)
	}
}

// intake is a new client with a first visit on each of the days.
func intake(days ...string) intakeData {
	in := intakeData{Client: "C-089", State: client{"J. Loonstra", "6612", "2025-10-30"}}
	for i, day := range days {
		in.Visits = append(in.Visits, Visit{
			Client: in.Client, Nurse: nurses[15], Route: routeID(15), Stop: 6, Day: day,
			Start: clock(day, 10*60+30+5*i), End: clock(day, 11*60+5*i),
			Activity: "personal care", Note: "New client: walk through the care plan.",
		})
	}
	return in
}

// byHand records what people change in the record system itself. On a doubled
// board an edit lands on the first copy, so none is made where the agent
// touches the second.
func (r *recorder) byHand() {
	stop := func(day string, route, stop int) map[string]any {
		return map[string]any{"day": day, "route": routeID(route - 1), "stop": stop}
	}
	note := func(text string) map[string]string { return map[string]string{"note": text} }
	r.edit("2025-10-26", "10:20:15", "client", "planner/m.dekker",
		map[string]any{"name": "E. Ivens"}, map[string]string{"door_code": "7714"})
	r.edit("2025-10-27", "11:21:40", "visit", "planner/m.dekker", stop(boardDay, 9, 4), note("Key with the neighbours at number 12."))
	r.edit("2025-10-27", "16:10:05", "visit", "nurse/g.hoekstra", stop(boardDay, 7, 5), note("Bring the large dressing set."))
	r.edit("2025-10-28", "09:33:28", "visit", "planner/m.dekker", stop("2025-10-30", 14, 2), note("Lift out of order until Friday."))
	r.edit("2025-10-28", "15:05:51", "visit", "planner/r.visser", stop(boardDay, 18, 11), note("New door code 2290."))
}
