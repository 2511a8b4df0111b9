package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"sluis/gate"
)

// Submit hands one intended mutation to a gate.
type Submit func(context.Context, gate.Request) (gate.Decision, error)

// Agent is the simulated planning agent. It is deterministic, and naive on
// purpose: it trusts that what it is handed is new, so each delivery gets a
// run of its own, and it trusts what it finds in the record system. It is not
// safe for concurrent use.
type Agent struct {
	Name        string // as the gate knows it
	Integration string
	RunPrefix   string // run ids are this and a number
	Target      gate.Target
	Submit      Submit

	rosters map[string]Roster
	runs    int
}

// Handled is what the agent did with one delivery.
type Handled struct {
	EventID   string
	Kind      string
	Run       string
	Decisions []gate.Decision // one for each mutation, in order
}

// intent is one mutation that the agent means to make.
type intent struct {
	effect   string
	mutation gate.Mutation
	basis    *gate.Basis
	evidence []string
}

// inbound is a webhook as the agent reads it.
type inbound struct {
	EventID    string          `json:"event_id"`
	Account    string          `json:"account"`
	Kind       string          `json:"kind"`
	OccurredAt string          `json:"occurred_at"`
	Data       json.RawMessage `json:"data"`
}

// Learn tells the agent what the roster system now answers for a day.
func (a *Agent) Learn(r Roster) {
	if a.rosters == nil {
		a.rosters = map[string]Roster{}
	}
	a.rosters[r.Day] = r
}

// Handle acts on one delivery: it reads the live state, works out the
// mutations, and submits them one by one. A mutation that the gate does not
// forward is left at that, and the next one follows.
func (a *Agent) Handle(ctx context.Context, raw []byte) (Handled, error) {
	var e inbound
	if err := json.Unmarshal(raw, &e); err != nil {
		return Handled{}, fmt.Errorf("agent: payload: %w", err)
	}
	a.runs++
	h := Handled{EventID: e.EventID, Kind: e.Kind, Run: a.RunPrefix + fmt.Sprintf("%04d", a.runs)}
	intents, err := a.plan(ctx, e)
	if err != nil {
		return h, fmt.Errorf("agent: %s: %w", e.EventID, err)
	}
	for i, in := range intents {
		d, err := a.Submit(ctx, gate.Request{
			Integration: a.Integration,
			Event:       gate.EventRef{Account: e.Account, ID: e.EventID, OccurredAt: e.OccurredAt},
			Effect:      in.effect, Last: i == len(intents)-1,
			Agent: a.Name, Run: h.Run, Mutation: in.mutation, Basis: in.basis,
			Evidence: append([]string{"event/" + e.EventID}, in.evidence...),
		})
		if err != nil {
			return h, fmt.Errorf("agent: %s %s: %w", e.EventID, in.effect, err)
		}
		h.Decisions = append(h.Decisions, d)
	}
	return h, nil
}

// plan works out what the event means for the record system as it is now.
func (a *Agent) plan(ctx context.Context, e inbound) ([]intent, error) {
	plans := map[string]func(*board, json.RawMessage) ([]intent, error){
		kindSwap: a.swap, kindTime: changeTime, kindCancel: cancel, kindIll: cover, kindIntake: takeIn,
	}
	plan, ok := plans[e.Kind]
	if !ok {
		return nil, nil
	}
	b, err := a.readBoard(ctx)
	if err != nil {
		return nil, err
	}
	return plan(b, e.Data)
}

// read decodes an event's data strictly.
func read[T any](raw json.RawMessage) (v T, err error) {
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	if err = in.Decode(&v); err != nil {
		err = fmt.Errorf("data: %w", err)
	}
	return v, err
}

// swap gives the stops of each route to the other's nurse; for a day that goes
// out with the swap, it makes the day's visits as the roster has them.
func (a *Agent) swap(b *board, raw json.RawMessage) ([]intent, error) {
	d, err := read[swapData](raw)
	if err != nil {
		return nil, err
	}
	if d.Publishes != "" {
		return a.publish(d.Publishes)
	}
	var out []intent
	for stop := d.From; stop <= d.To; stop++ {
		for side, route := range d.Routes {
			at := stopRef{d.Day, route, stop}
			in, ok := b.update("swap/", at, b.first(at), map[string]string{"nurse": d.Nurses[1-side]})
			if ok {
				out = append(out, in)
			}
		}
	}
	return out, nil
}

// publish makes the visits of a whole day.
func (a *Agent) publish(day string) ([]intent, error) {
	roster, ok := a.rosters[day]
	if !ok {
		return nil, fmt.Errorf("the roster system has no answer for %s", day)
	}
	var out []intent
	for _, route := range roster.Routes {
		for _, v := range route.Visits {
			out = append(out, intent{
				effect:   fmt.Sprintf("visit/%s/%02d", v.Route, v.Stop),
				mutation: gate.Mutation{Op: gate.OpCreate, Type: "visit", Subject: v.Client, Body: canonical(v)},
				evidence: []string{"roster/" + day},
			})
		}
	}
	return out, nil
}

// changeTime moves a visit. Where a stop is there more than once, the newest
// is taken to be the one that counts.
func changeTime(b *board, raw json.RawMessage) ([]intent, error) {
	d, err := read[timeData](raw)
	if err != nil {
		return nil, err
	}
	in, ok := b.update("time/", d.Visit, b.newest(d.Visit), map[string]string{"start": d.Start, "end": d.End})
	return some(in, ok), nil
}

// cancel removes a visit.
func cancel(b *board, raw json.RawMessage) ([]intent, error) {
	d, err := read[cancelData](raw)
	if err != nil {
		return nil, err
	}
	found := b.first(d.Visit)
	in, ok := b.update("cancel/", d.Visit, found, nil)
	in.mutation.Op, in.mutation.Body = gate.OpDelete, json.RawMessage(`{}`)
	return some(in, ok), nil
}

// cover hands the stops of an ill nurse to others in turn.
func cover(b *board, raw json.RawMessage) ([]intent, error) {
	d, err := read[illData](raw)
	if err != nil {
		return nil, err
	}
	var out []intent
	for stop := d.From; stop <= d.To && len(d.Cover) > 0; stop++ {
		at := stopRef{d.Day, d.Route, stop}
		nurse := d.Cover[(stop-d.From)%len(d.Cover)]
		if in, ok := b.update("cover/", at, b.first(at), map[string]string{"nurse": nurse}); ok {
			out = append(out, in)
		}
	}
	return out, nil
}

// takeIn makes a new client and the first visits.
func takeIn(_ *board, raw json.RawMessage) ([]intent, error) {
	d, err := read[intakeData](raw)
	if err != nil {
		return nil, err
	}
	out := []intent{{effect: "client", mutation: gate.Mutation{
		Op: gate.OpCreate, Type: "client", ID: d.Client, Subject: d.Client, Body: canonical(d.State),
	}}}
	for _, v := range d.Visits {
		out = append(out, intent{effect: "visit/" + v.Day, mutation: gate.Mutation{
			Op: gate.OpCreate, Type: "visit", Subject: v.Client, Body: canonical(v),
		}})
	}
	return out, nil
}

func some(in intent, ok bool) []intent {
	if !ok {
		return nil
	}
	return []intent{in}
}

// board is the live state as the agent looks at it: the visits at each stop,
// lowest id first.
type board struct {
	stops map[stopRef][]gate.Entity
}

const livePage = 1000

func (a *Agent) readBoard(ctx context.Context) (*board, error) {
	b := &board{stops: map[stopRef][]gate.Entity{}}
	after := ""
	for {
		page, next, err := a.Target.Live(ctx, after, livePage)
		if err != nil {
			return nil, fmt.Errorf("live state: %w", err)
		}
		for _, e := range page {
			var at stopRef
			if e.Type == "visit" && json.Unmarshal(e.State, &at) == nil {
				b.stops[at] = append(b.stops[at], e)
			}
		}
		if after = next; after == "" {
			break
		}
	}
	for _, found := range b.stops {
		slices.SortFunc(found, byID)
	}
	return b, nil
}

func (b *board) first(at stopRef) *gate.Entity {
	if found := b.stops[at]; len(found) > 0 {
		return &found[0]
	}
	return nil
}

func (b *board) newest(at stopRef) *gate.Entity {
	if found := b.stops[at]; len(found) > 0 {
		return &found[len(found)-1]
	}
	return nil
}

// update is the intent to change the entity at a stop; false when there is
// none.
func (b *board) update(effect string, at stopRef, e *gate.Entity, patch map[string]string) (intent, bool) {
	if e == nil {
		return intent{}, false
	}
	var v Visit
	if json.Unmarshal(e.State, &v) != nil {
		return intent{}, false
	}
	return intent{
		effect: effect + fmt.Sprintf("%s/%s/%02d", at.Day, at.Route, at.Stop),
		mutation: gate.Mutation{
			Op: gate.OpUpdate, Type: e.Type, ID: e.ID, Subject: v.Client, Body: canonical(patch),
		},
		basis:    &gate.Basis{Type: e.Type, ID: e.ID, Version: e.Version},
		evidence: []string{e.Type + "/" + e.ID + "@" + strconv.FormatInt(e.Version, 10)},
	}, true
}
