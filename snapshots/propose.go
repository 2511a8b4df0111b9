package snapshots

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"sluis/gate"
)

// The sources of a suspect.
const (
	sourcePair      = "pair"
	sourceRange     = "range"
	sourceRun       = "run"
	sourceSelection = "selection"
)

// logPage is how many mutations are read at once.
const logPage = 1000

// Propose lists what a rollback to a snapshot would undo: of each hash pair,
// open or judged a duplicate, whose repeat came after the snapshot, the copy
// that nothing touched since (incident 1). Where both copies were touched, a
// person has to say which: those pairs are Undecided.
func (r *rollbacks) Propose(ctx context.Context, integration string, seq int64) (Proposal, error) {
	snap, err := r.worlds.Get(ctx, integration, seq)
	if err != nil {
		return Proposal{}, fmt.Errorf("propose a rollback: %w", err)
	}
	states := []gate.PairState{gate.PairOpen, gate.PairDuplicate}
	pairs, err := r.gate.Pairs(ctx, gate.PairFilter{
		Integration: integration, States: states, AfterSeq: snap.LastMutation, Limit: -1,
	})
	if err != nil {
		return Proposal{}, fmt.Errorf("propose a rollback: %w", err)
	}
	all, err := r.gate.CountPairs(ctx, gate.PairFilter{Integration: integration, States: states})
	if err != nil {
		return Proposal{}, fmt.Errorf("propose a rollback: %w", err)
	}
	p := propose(pairs)
	p.Snapshot, p.Earlier = snap, max(int(all)-len(pairs), 0)
	return p, nil
}

// propose divides pairs into suspects and undecided ones. Copies of one
// intent form a family: A repeated as B, B repeated as C.
func propose(pairs []gate.Pair) Proposal {
	f := families{parent: map[int64]int64{}, copies: map[int64]*copyOf{}}
	var applied []gate.Pair
	for _, p := range pairs {
		if p.First.State == gate.Committed && p.Second.State == gate.Committed {
			applied = append(applied, p)
			f.join(p)
		}
	}
	suspects := map[int64]Suspect{}
	members := f.members()
	for _, id := range slices.Sorted(maps.Keys(members)) {
		for _, s := range judgeFamily(members[id]) {
			suspects[s.Mutation.ID] = s
		}
	}
	var out Proposal
	for _, id := range slices.Sorted(maps.Keys(suspects)) {
		out.Suspects = append(out.Suspects, suspects[id])
	}
	undecided := map[int64]bool{} // by family
	for _, p := range applied {
		_, first := suspects[p.First.ID]
		_, second := suspects[p.Second.ID]
		if !first && !second {
			out.Undecided = append(out.Undecided, p)
			undecided[f.root(p.First.ID)] = true
		}
	}
	for _, p := range applied { // two kept copies with a suspect between them
		if root := f.root(p.First.ID); !undecided[root] && keptOf(members[root], suspects) > 1 {
			out.Undecided = append(out.Undecided, p)
			undecided[root] = true
		}
	}
	slices.SortFunc(out.Undecided, func(a, b gate.Pair) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// copyOf is one copy of an intent.
type copyOf struct {
	mutation gate.MutationRecord
	touched  bool
	pair     int64 // the first pair that it is in
}

// families joins the copies that pairs connect (union-find).
type families struct {
	parent map[int64]int64
	copies map[int64]*copyOf
}

func (f *families) root(id int64) int64 {
	for f.parent[id] != id {
		f.parent[id] = f.parent[f.parent[id]]
		id = f.parent[id]
	}
	return id
}

func (f *families) join(p gate.Pair) {
	f.meet(p.First, p.FirstTouched > 0, p.ID)
	f.meet(p.Second, p.SecondTouched > 0, p.ID)
	a, b := f.root(p.First.ID), f.root(p.Second.ID)
	f.parent[max(a, b)] = min(a, b)
}

func (f *families) meet(m gate.MutationRecord, touched bool, pair int64) {
	c, known := f.copies[m.ID]
	if !known {
		f.parent[m.ID] = m.ID
		c = &copyOf{mutation: m, pair: pair}
		f.copies[m.ID] = c
	}
	c.touched = c.touched || touched
}

// members lists each family's copies, oldest first.
func (f *families) members() map[int64][]*copyOf {
	out := map[int64][]*copyOf{}
	for _, id := range slices.Sorted(maps.Keys(f.copies)) {
		root := f.root(id)
		out[root] = append(out[root], f.copies[id])
	}
	return out
}

// judgeFamily names the suspects among the copies of one intent. On one entity
// the later copy is the repeat, whatever touched the entity since. Otherwise
// the touched copies are kept, and where none is, the oldest.
func judgeFamily(copies []*copyOf) []Suspect {
	var suspects []Suspect
	byEntity := map[entityKey]*copyOf{}
	var first []*copyOf // one copy of each entity
	for _, c := range copies {
		k := keyOf(&c.mutation)
		if kept := byEntity[k]; kept != nil {
			suspects = append(suspects, suspectOf(c, kept))
			continue
		}
		byEntity[k] = c
		first = append(first, c)
	}
	kept := first[0]
	if i := slices.IndexFunc(first, func(c *copyOf) bool { return c.touched }); i >= 0 {
		kept = first[i]
	}
	for _, c := range first {
		if c != kept && !c.touched {
			suspects = append(suspects, suspectOf(c, kept))
		}
	}
	return suspects
}

func suspectOf(c, kept *copyOf) Suspect {
	return Suspect{Mutation: c.mutation, PairID: c.pair, Source: sourcePair, Twin: kept.mutation.ID}
}

func keptOf(copies []*copyOf, suspects map[int64]Suspect) int {
	n := 0
	for _, c := range copies {
		if _, suspect := suspects[c.mutation.ID]; !suspect {
			n++
		}
	}
	return n
}

// SuspectsByRun lists what one agent run committed after a snapshot.
func (r *rollbacks) SuspectsByRun(ctx context.Context, integration string, seq int64, run string) ([]Suspect, error) {
	return r.suspectsWhere(ctx, integration, seq, sourceRun, func(m gate.MutationRecord) bool { return m.Run == run })
}

// SuspectsByRange lists what was committed after a snapshot and received in
// [from, to).
func (r *rollbacks) SuspectsByRange(ctx context.Context, integration string, seq int64, from, to time.Time) ([]Suspect, error) {
	return r.suspectsWhere(ctx, integration, seq, sourceRange, func(m gate.MutationRecord) bool {
		return !m.ReceivedAt.Before(from) && m.ReceivedAt.Before(to)
	})
}

func (r *rollbacks) suspectsWhere(ctx context.Context, integration string, seq int64, source string, match func(gate.MutationRecord) bool) ([]Suspect, error) {
	snap, err := r.worlds.Get(ctx, integration, seq)
	if err != nil {
		return nil, fmt.Errorf("list suspects: %w", err)
	}
	var suspects []Suspect
	err = r.eachMutation(ctx, integration, snap.LastMutation, func(m gate.MutationRecord) error {
		if m.State == gate.Committed && m.RollbackID == 0 && match(m) {
			suspects = append(suspects, Suspect{Mutation: m, Source: source})
		}
		return nil
	})
	return suspects, err
}

// eachMutation reads the committed mutations after a position, page by page.
func (r *rollbacks) eachMutation(ctx context.Context, integration string, after int64, f func(gate.MutationRecord) error) error {
	for {
		page, err := r.gate.MutationsAfter(ctx, integration, after, math.MaxInt64, logPage)
		if err != nil {
			return fmt.Errorf("read mutations after M-%d: %w", after, err)
		}
		for _, m := range page {
			if err := f(m); err != nil {
				return err
			}
		}
		if len(page) == 0 {
			return nil
		}
		after = page[len(page)-1].ID
	}
}
