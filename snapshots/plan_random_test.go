package snapshots

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluis/gate"
)

// night is a random history with its record system.
type night struct {
	rnd      *rand.Rand
	world    memoryWorld
	live     map[entityKey]gate.Entity
	log      []*gate.MutationRecord
	suspects []*gate.MutationRecord
	hand     map[entityKey]bool // touched by hand
	next     int64
}

func newNight(seed uint64) *night {
	n := &night{
		rnd: rand.New(rand.NewPCG(seed, 1)), world: memoryWorld{}, live: map[entityKey]gate.Entity{},
		hand: map[entityKey]bool{}, next: 11,
	}
	for i := range 6 {
		k := visit(fmt.Sprintf("V%d", i))
		n.apply(mut(0, gate.OpCreate, k.ID, n.body(true)))
		n.world[k] = recorded{State: n.live[k].State}
	}
	return n
}

func (n *night) body(whole bool) string {
	fields := map[string]json.RawMessage{}
	for _, name := range []string{"a", "b", "c"} {
		switch n.rnd.IntN(4) {
		case 0, 1:
			fields[name] = json.RawMessage(fmt.Sprint(n.rnd.IntN(4)))
		case 2:
			if !whole {
				fields[name] = json.RawMessage("null")
			}
		case 3:
			fields[name] = json.RawMessage(fmt.Sprintf(`{"x":%d}`, n.rnd.IntN(3)))
		}
	}
	return string(gate.Compose(fields))
}

// apply is the record system: it refuses nothing, and counts versions.
func (n *night) apply(m *gate.MutationRecord) {
	k := keyOf(m)
	e := n.live[k]
	switch m.Mutation.Op {
	case gate.OpDelete:
		delete(n.live, k)
		return
	case gate.OpCreate:
		e = gate.Entity{Type: k.Type, ID: k.ID, State: m.Mutation.Body}
	default:
		state, err := gate.Merge(e.State, m.Mutation.Body)
		if err != nil {
			panic(err)
		}
		e.State = state
	}
	e.Version = n.next
	n.next++
	n.live[k] = e
}

// pick is a random live entity.
func (n *night) pick() (entityKey, bool) {
	keys := slices.SortedFunc(maps.Keys(n.live), compareKeys)
	if len(keys) == 0 {
		return entityKey{}, false
	}
	return keys[n.rnd.IntN(len(keys))], true
}

func (n *night) mutate(id int64) *gate.MutationRecord {
	k, ok := n.pick()
	switch pick := n.rnd.IntN(10); {
	case !ok || pick < 3:
		return mut(id, gate.OpCreate, fmt.Sprintf("N%d", id), n.body(true))
	case pick < 8:
		return mut(id, gate.OpUpdate, k.ID, n.body(false))
	}
	return mut(id, gate.OpDelete, k.ID, `{}`)
}

func (n *night) byHand() {
	m := n.mutate(n.next + 1000)
	n.hand[keyOf(m)] = true
	n.apply(m)
}

func (n *night) input() planInput {
	return planInput{Position: Position{Last: 10}, World: n.world, Log: n.log, Suspects: n.suspects}
}

func (n *night) plan(t *testing.T) plan {
	t.Helper()
	return runPlan(t, n.input(), slices.Collect(maps.Values(n.live))...)
}

// TestPlanUndoesRandomNights: whatever the history, sending the compensations
// makes the untouched part of the world what it would be without the suspects,
// leaves what somebody changed by hand, and leaves nothing to plan again.
func TestPlanUndoesRandomNights(t *testing.T) {
	for seed := range uint64(600) {
		n := newNight(seed)
		for i := range 12 {
			m := n.mutate(int64(11 + i))
			n.apply(m)
			n.log = append(n.log, m)
			if n.rnd.IntN(4) == 0 {
				n.suspects = append(n.suspects, m)
			}
			if n.rnd.IntN(8) == 0 {
				n.byHand()
			}
		}
		before := maps.Clone(n.live)
		p := n.plan(t)
		if !gocmp.Equal(p, n.plan(t)) {
			t.Fatalf("seed %d: the same night gives two plans", seed)
		}
		for _, r := range p.Rows {
			if r.Kind == RowCompensation {
				n.send(t, seed, r)
			}
		}
		n.checkAfter(t, seed, before, p)
		for _, r := range n.plan(t).Rows {
			if r.Kind == RowCompensation {
				t.Fatalf("seed %d: planned again after applying: %s", seed, brief(r))
			}
		}
	}
}

// send applies a row as the target would, with its precondition.
func (n *night) send(t *testing.T, seed uint64, r Row) {
	t.Helper()
	e, there := n.live[entityKey{r.EntityType, r.EntityID}]
	if there != (r.Live != nil) || there && e.Version != r.LiveVersion {
		t.Fatalf("seed %d: precondition of %s does not hold: live %+v", seed, brief(r), e)
	}
	m := mut(0, r.Op, r.EntityID, string(r.Body))
	n.apply(m)
}

func (n *night) checkAfter(t *testing.T, seed uint64, before map[entityKey]gate.Entity, p plan) {
	t.Helper()
	expected := n.expected(t)
	open := map[entityKey]bool{}
	for _, r := range p.Rows {
		open[entityKey{r.EntityType, r.EntityID}] = open[entityKey{r.EntityType, r.EntityID}] || r.Kind != RowCompensation
	}
	keys := maps.Clone(n.live)
	maps.Copy(keys, before)
	for k := range expected {
		keys[k] = gate.Entity{}
	}
	for k := range keys {
		if !open[k] && !samePresence(n.live[k].State, expected[k]) {
			t.Fatalf("seed %d: %s is %s, want %s", seed, k.ID, n.live[k].State, expected[k])
		}
		if open[k] && !n.hand[k] && !n.contested(p, k) {
			t.Fatalf("seed %d: %s was left open, and nobody touched it by hand", seed, k.ID)
		}
	}
	for _, r := range p.Rows {
		k := entityKey{r.EntityType, r.EntityID}
		if r.Kind != RowOutside {
			continue
		}
		after := changed(before[k].State, n.live[k].State)
		for _, name := range changed(r.Base, r.Live) {
			if slices.Contains(after, name) {
				t.Fatalf("seed %d: %s of %s was changed by hand and then by the plan", seed, name, k.ID)
			}
		}
	}
}

// contested: a legitimate later change would go with it, or it cannot be undone.
func (n *night) contested(p plan, k entityKey) bool {
	return slices.ContainsFunc(p.Rows, func(r Row) bool {
		return r.EntityID == k.ID && (r.Kind == RowResidue || len(r.Contaminated) > 0)
	})
}

// expected replays the night without its suspects, independently of story.
func (n *night) expected(t *testing.T) map[entityKey]json.RawMessage {
	t.Helper()
	states := map[entityKey]json.RawMessage{}
	for k, e := range n.world {
		states[k] = e.State
	}
	for _, m := range n.log {
		if slices.Contains(n.suspects, m) {
			continue
		}
		k := keyOf(m)
		switch state := states[k]; {
		case m.Mutation.Op == gate.OpCreate:
			states[k] = m.Mutation.Body
		case m.Mutation.Op == gate.OpDelete:
			delete(states, k)
		case state != nil:
			merged, err := gate.Merge(state, m.Mutation.Body)
			if err != nil {
				t.Fatal(err)
			}
			states[k] = merged
		}
	}
	return states
}
