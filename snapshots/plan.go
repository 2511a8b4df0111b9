package snapshots

import (
	"cmp"
	"fmt"
	"slices"

	"sluis/gate"
)

// planInput is what a plan is made from, apart from the live state.
type planInput struct {
	Position Position               // of the snapshot: what is inside
	World    baseWorld              // the snapshot's state
	Log      []*gate.MutationRecord // committed, and not inside
	Suspects []*gate.MutationRecord
	// Between lists, for suspects older than the snapshot, what came after
	// them on the same entity up to the snapshot and is not suspected.
	Between map[entityKey][]int64
}

// plan is the outcome of a dry run: rows in the order in which they would be
// sent, and their totals.
type plan struct {
	Rows    []Row
	Summary Summary
}

// planner compares base, expected and live. It is pure: the caller feeds it
// the live state in any order, page by page, and keeps nothing of it but what
// differs. Time is linear in the state, memory in what differs and in the
// names of entities.
type planner struct {
	in        planInput
	suspected map[int64]bool
	stories   map[entityKey]*story
	basedOn   map[entityKey][]*gate.MutationRecord // not suspected, drafted on the entity
	found     map[entityKey][]Row
	seen      map[entityKey]struct{}
	legit     map[int64]bool // later mutations that are not suspected, nor a rollback's own
}

func newPlanner(in planInput) *planner {
	p := &planner{
		in:        in,
		suspected: make(map[int64]bool, len(in.Suspects)),
		stories:   map[entityKey]*story{},
		basedOn:   map[entityKey][]*gate.MutationRecord{},
		found:     map[entityKey][]Row{},
		seen:      make(map[entityKey]struct{}, in.World.size()),
		legit:     map[int64]bool{},
	}
	for _, m := range in.Suspects {
		p.suspected[m.ID] = true
	}
	for _, m := range in.Suspects {
		if in.Position.Contains(m.ID) {
			s := p.story(keyOf(m))
			s.before = append(s.before, m)
			s.kept = in.Between[s.key]
		} else {
			p.story(keyOf(m)).add(m)
		}
	}
	for _, s := range p.stories {
		slices.SortFunc(s.before, func(a, b *gate.MutationRecord) int { return cmp.Compare(a.ID, b.ID) })
	}
	for _, m := range in.Log {
		p.add(m)
	}
	return p
}

// add takes in one committed mutation after the snapshot, and reports whether
// it was new. Its entity has to be seen (or gone) again afterwards.
func (p *planner) add(m *gate.MutationRecord) bool {
	s := p.story(keyOf(m))
	before := len(s.muts)
	s.add(m)
	if p.suspected[m.ID] || p.legit[m.ID] {
		return false
	}
	if m.RollbackID == 0 {
		p.legit[m.ID] = true
		if b := m.Basis; b != nil {
			k := entityKey{b.Type, b.ID}
			p.basedOn[k] = append(p.basedOn[k], m)
		}
	}
	return len(s.muts) > before
}

func (p *planner) story(k entityKey) *story {
	s := p.stories[k]
	if s == nil {
		s = &story{key: k}
		p.stories[k] = s
	}
	return s
}

// see compares one live entity. The last word on an entity counts.
func (p *planner) see(e gate.Entity) error {
	k := entityKey{e.Type, e.ID}
	p.seen[k] = struct{}{}
	return p.judge(k, &e)
}

// gone says that the target has no such entity.
func (p *planner) gone(k entityKey) error {
	delete(p.seen, k)
	return p.judge(k, nil)
}

func (p *planner) judge(k entityKey, live *gate.Entity) error {
	delete(p.found, k)
	rows, err := p.rows(k, live)
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.Type, k.ID, err)
	}
	if len(rows) > 0 {
		p.found[k] = rows
	}
	return nil
}

func (p *planner) rows(k entityKey, live *gate.Entity) ([]Row, error) {
	start, _ := p.in.World.entity(k)
	s := p.stories[k]
	if s == nil {
		t := told{base: start.State, expected: start.State, subject: start.Subject}
		return outside(t.row(k, live)), nil
	}
	t, err := s.tell(start, func(id int64) bool { return p.suspected[id] })
	if err != nil {
		return nil, err
	}
	if len(t.suspects) == 0 {
		return outside(t.row(k, live)), nil
	}
	return t.compare(k, live, p.contaminated(k, &t))
}

// contaminated lists the mutations that are not suspected and came after a
// suspect on its entity, or were drafted on it.
func (p *planner) contaminated(k entityKey, t *told) []int64 {
	ids := slices.Clone(t.later)
	for _, m := range p.basedOn[k] {
		if m.ID > t.suspects[0].ID {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// finish judges what the target does not have, and puts the rows in order.
func (p *planner) finish() (plan, error) {
	checked := len(p.seen)
	for k := range p.in.World.keys() {
		if _, live := p.seen[k]; !live {
			if err := p.gone(k); err != nil {
				return plan{}, err
			}
		}
	}
	for k := range p.stories {
		_, live := p.seen[k]
		_, judged := p.found[k]
		if !live && !judged {
			if err := p.gone(k); err != nil {
				return plan{}, err
			}
		}
	}
	rows := p.ordered()
	return plan{Rows: rows, Summary: summarise(rows, len(p.legit), checked)}, nil
}

// ordered numbers the rows: what undoes the last action first; what cannot be
// undone and what is not ours after it.
func (p *planner) ordered() []Row {
	n := 0
	for _, rows := range p.found {
		n += len(rows)
	}
	all := make([]Row, 0, n)
	for _, rows := range p.found {
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(last(b.Undoes), last(a.Undoes)),
			compareKeys(entityKey{a.EntityType, a.EntityID}, entityKey{b.EntityType, b.EntityID}),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
	for i := range all {
		all[i].Row = i + 1
		all[i].GroupKey = groupKey(all[i])
	}
	return all
}

func rank(r Row) int {
	switch r.Kind {
	case RowResidue:
		return 1
	case RowOutside:
		return 2
	}
	return 0
}

func last(ids []int64) int64 {
	if len(ids) == 0 {
		return 0
	}
	return slices.Max(ids)
}

// sends reports whether approval would send the row.
func (r Row) sends() bool {
	return (r.Kind == RowCompensation || r.Kind == RowDecision) && r.Choice == choiceRestore
}

// summarise counts rows. laterKept and checked come from the dry run.
func summarise(rows []Row, laterKept, checked int) Summary {
	s := Summary{LaterKept: laterKept, Checked: checked, ByOp: map[string]int{}}
	subjects := map[string]struct{}{}
	for _, r := range rows {
		switch r.Kind {
		case RowDecision:
			s.Decisions++
		case RowOutside:
			s.Outside++
		case RowResidue:
			s.Residue++
		}
		if r.sends() {
			s.Compensations++
			s.ByOp[string(r.Op)]++
			subjects[r.Subject] = struct{}{}
		}
	}
	s.Subjects = len(subjects)
	return s
}
