package snapshots

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluis/gate"
)

// entityKey names an entity.
type entityKey struct{ Type, ID string }

func compareKeys(a, b entityKey) int {
	return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.ID, b.ID))
}

func keyOf(m *gate.MutationRecord) entityKey {
	return entityKey{m.Mutation.Type, m.EntityID()}
}

// story is what happened to one entity since the snapshot, as far as the gate
// knows, and which of it is suspected.
type story struct {
	key    entityKey
	muts   []*gate.MutationRecord // committed after the snapshot, ascending
	before []*gate.MutationRecord // suspects that the snapshot already holds, ascending
	// kept lists mutations that are not suspects, came after one of before,
	// and are inside the snapshot: undoing a create would take them along.
	kept []int64
}

// add puts m in its place; a mutation that is already there stays once.
func (s *story) add(m *gate.MutationRecord) {
	i, found := slices.BinarySearchFunc(s.muts, m.ID, func(m *gate.MutationRecord, id int64) int {
		return cmp.Compare(m.ID, id)
	})
	if !found {
		s.muts = slices.Insert(s.muts, i, m)
	}
}

// told is a story played to its end, with and without the suspects.
type told struct {
	base, expected json.RawMessage // nil: absent
	subject        string
	suspects       []*gate.MutationRecord // ascending
	later          []int64                // not suspected, after the first suspect
	owed           []string               // fields whose value before a suspect is not known
}

// tell replays the story: base is replay(S0, L), what we believe; expected is
// replay(S0, L∖X), what should be. A suspect create that is older than the
// snapshot is taken out of expected's start.
func (s *story) tell(start recorded, suspected func(id int64) bool) (told, error) {
	t := told{base: start.State, expected: start.State, subject: start.Subject, later: slices.Clone(s.kept)}
	owed := map[string]bool{}
	for _, m := range s.before {
		t.suspects = append(t.suspects, m)
		if m.Mutation.Op == gate.OpCreate {
			t.expected = nil
			continue
		}
		if err := owe(owed, m, t.base != nil); err != nil {
			return t, err
		}
	}
	for _, m := range s.muts {
		t.subject = cmp.Or(t.subject, m.Mutation.Subject)
		if err := t.step(m, suspected(m.ID), owed); err != nil {
			return t, err
		}
	}
	if t.subject == "" && len(t.suspects) > 0 {
		t.subject = t.suspects[0].Mutation.Subject
	}
	t.owed = slices.Sorted(maps.Keys(owed))
	return t, nil
}

func (t *told) step(m *gate.MutationRecord, suspect bool, owed map[string]bool) (err error) {
	known := t.base != nil
	if t.base, err = replay(t.base, m); err != nil {
		return err
	}
	if suspect {
		t.suspects = append(t.suspects, m)
		if m.Mutation.Op != gate.OpCreate && !known {
			return owe(owed, m, m.Mutation.Op == gate.OpUpdate)
		}
		return nil
	}
	if len(t.suspects) > 0 && m.RollbackID == 0 {
		t.later = append(t.later, m.ID)
	}
	if t.expected, err = replay(t.expected, m); err != nil {
		return err
	}
	return settleOwed(owed, m)
}

// replay is one mutation's effect. An update of what is absent leaves it
// absent: its other fields are not known.
func replay(state json.RawMessage, m *gate.MutationRecord) (json.RawMessage, error) {
	switch m.Mutation.Op {
	case gate.OpCreate:
		return m.Mutation.Body, nil
	case gate.OpDelete:
		return nil, nil
	}
	if state == nil {
		return nil, nil
	}
	next, err := gate.Merge(state, m.Mutation.Body)
	if err != nil {
		return nil, fmt.Errorf("replay M-%d: %w", m.ID, err)
	}
	return next, nil
}

// existence stands among owed fields for the entity itself.
const existence = ""

// owe notes that what suspect m overwrote is not known. present says whether
// the entity is there after m; an update of what is gone has no effect left.
func owe(owed map[string]bool, m *gate.MutationRecord, present bool) error {
	if m.Mutation.Op == gate.OpDelete {
		if !present {
			owed[existence] = true
		}
		return nil
	}
	if !present {
		return nil
	}
	fields, err := gate.Fields(m.Mutation.Body)
	if err != nil {
		return fmt.Errorf("replay M-%d: %w", m.ID, err)
	}
	for name := range fields {
		owed[name] = true
	}
	return nil
}

// settleOwed forgets what legitimate mutation m set afresh.
func settleOwed(owed map[string]bool, m *gate.MutationRecord) error {
	if len(owed) == 0 {
		return nil
	}
	if m.Mutation.Op != gate.OpUpdate {
		clear(owed)
		return nil
	}
	fields, err := gate.Fields(m.Mutation.Body)
	if err != nil {
		return fmt.Errorf("replay M-%d: %w", m.ID, err)
	}
	for name, value := range fields {
		if value[0] != '{' { // an object is merged: parts of it may be older
			delete(owed, name)
		}
	}
	return nil
}
