package snapshots

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sluis/gate"
)

// opNone stands in rows that send nothing.
const opNone gate.Op = "none"

// The two choices of a row.
const (
	choiceRestore = "restore"
	choiceKeep    = "keep"
)

// same reports whether two canonical values mean the same. In an object a
// member that is null counts as absent, because a merge patch (RFC 7396) can
// set the one only as the other.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if !isObject(a) || !isObject(b) {
		return isNull(a) && isNull(b)
	}
	return len(changed(a, b)) == 0
}

// changed lists the fields in which two states differ, by name. A nil state is
// absent and has no fields.
func changed(a, b json.RawMessage) []string {
	var names []string
	for _, d := range gate.Diff(a, b) {
		if !same(d.Old, d.New) {
			names = append(names, d.Name)
		}
	}
	return names
}

func isObject(v json.RawMessage) bool { return len(v) > 0 && v[0] == '{' }
func isNull(v json.RawMessage) bool   { return len(v) == 0 || string(v) == "null" }

// samePresence compares two whole states, where nil is absent.
func samePresence(a, b json.RawMessage) bool {
	return (a == nil) == (b == nil) && same(a, b)
}

// fieldsOf splits a state that the target or the gate wrote; nil has none.
func fieldsOf(state json.RawMessage) (map[string]json.RawMessage, error) {
	if state == nil {
		return map[string]json.RawMessage{}, nil
	}
	fields, err := gate.Fields(state)
	if err != nil {
		return nil, fmt.Errorf("read a state: %w", err)
	}
	return fields, nil
}

// patch is the merge patch that gives the named fields of live the values that
// they have in want.
func patch(live, want json.RawMessage, names []string) (json.RawMessage, error) {
	from, err := fieldsOf(live)
	if err != nil {
		return nil, err
	}
	to, err := fieldsOf(want)
	if err != nil {
		return nil, err
	}
	out := make(map[string]json.RawMessage, len(names))
	for _, name := range names {
		if out[name], err = patchValue(from[name], to[name]); err != nil {
			return nil, err
		}
	}
	return gate.Compose(out), nil
}

func patchValue(from, to json.RawMessage) (json.RawMessage, error) {
	switch {
	case isNull(to):
		return json.RawMessage("null"), nil
	case isObject(from) && isObject(to):
		return patch(from, to, changed(from, to))
	}
	return to, nil
}

// compare makes the rows of one entity that suspects touched: the design's
// three-way rule, field by field. live is nil where the target has none.
func (t *told) compare(k entityKey, live *gate.Entity, contaminated []int64) ([]Row, error) {
	row := t.row(k, live)
	row.Contaminated = contaminated
	if len(t.owed) > 0 {
		return []Row{t.residue(row)}, nil
	}
	switch {
	case samePresence(t.base, t.expected):
		return outside(row), nil
	case t.expected == nil:
		return t.undoCreate(row), nil
	case t.base == nil || row.Live == nil:
		return t.undoDelete(row)
	}
	return t.undoUpdate(row)
}

// row is what all rows of one entity have in common.
func (t *told) row(k entityKey, live *gate.Entity) Row {
	r := Row{
		EntityType: k.Type, EntityID: k.ID, Subject: t.subject,
		Base: t.base, Expected: t.expected, State: RowPlanned,
	}
	if live != nil {
		r.Live, r.LiveVersion, r.LiveBy, r.LiveAt = live.State, live.Version, live.UpdatedBy, live.UpdatedAt
	}
	for _, m := range t.suspects {
		r.Undoes = append(r.Undoes, m.ID)
	}
	return r
}

// outside shows a change that nobody made through the gate. It is kept.
func outside(row Row) []Row {
	if samePresence(row.Base, row.Live) {
		return nil
	}
	row.Kind, row.Op, row.Choice = RowOutside, opNone, choiceKeep
	row.Body, row.Undoes, row.Contaminated = json.RawMessage("{}"), nil, nil
	return []Row{row}
}

func (t *told) residue(row Row) Row {
	row.Kind, row.Op, row.Choice, row.Body = RowResidue, opNone, choiceKeep, json.RawMessage("{}")
	if slices.Contains(t.owed, existence) {
		row.Detail = "cannot be undone: what was deleted is not in this snapshot; choose one that holds it"
	} else {
		row.Detail = fmt.Sprintf("cannot be undone: what %s held before is not in this snapshot; choose an earlier one", strings.Join(t.owed, ", "))
	}
	return row
}

// undoCreate removes what should not be there. Where somebody changed it since,
// through the gate or by hand, that change would go with it: a decision.
func (t *told) undoCreate(row Row) []Row {
	if row.Live == nil {
		return nil // already gone
	}
	row.Op, row.Body = gate.OpDelete, json.RawMessage("{}")
	if same(row.Live, row.Base) && len(t.later) == 0 {
		return []Row{compensation(row)}
	}
	return []Row{decision(row)}
}

// undoDelete puts back what should be there: as it was where the target has
// none, else field by field over what somebody put there meanwhile.
func (t *told) undoDelete(row Row) ([]Row, error) {
	if row.Live == nil {
		row.Op, row.Body = gate.OpCreate, t.expected
		if t.base == nil {
			return []Row{compensation(row)}, nil
		}
		return []Row{decision(row)}, nil // removed by hand
	}
	names := changed(row.Live, t.expected)
	if len(names) == 0 {
		return nil, nil
	}
	return t.update(row, names, decision)
}

// undoUpdate restores the fields that the suspects set. Of those, the ones
// that somebody else changed since are a row of their own: a decision. Changes
// by hand in other fields are shown.
func (t *told) undoUpdate(row Row) ([]Row, error) {
	live, err := fieldsOf(row.Live)
	if err != nil {
		return nil, err
	}
	var ours, theirs, suspect []string
	for _, d := range gate.Diff(t.base, t.expected) {
		if same(d.Old, d.New) {
			continue
		}
		suspect = append(suspect, d.Name)
		switch {
		case same(live[d.Name], d.New):
		case same(live[d.Name], d.Old):
			ours = append(ours, d.Name)
		default:
			theirs = append(theirs, d.Name)
		}
	}
	rows, err := t.update(row, ours, compensation)
	if err != nil {
		return nil, err
	}
	decisions, err := t.update(row, theirs, decision)
	if err != nil {
		return nil, err
	}
	rows = append(rows, decisions...)
	byHand := func(name string) bool { return !slices.Contains(suspect, name) }
	if slices.ContainsFunc(changed(row.Base, row.Live), byHand) {
		rows = append(rows, outside(row)...)
	}
	return rows, nil
}

func (t *told) update(row Row, names []string, as func(Row) Row) ([]Row, error) {
	if len(names) == 0 {
		return nil, nil
	}
	body, err := patch(row.Live, t.expected, names)
	if err != nil {
		return nil, err
	}
	row.Op, row.Body, row.Undoes = gate.OpUpdate, body, t.setting(names)
	return []Row{as(row)}, nil
}

// setting lists the suspects that had a part in the named fields.
func (t *told) setting(names []string) []int64 {
	var ids []int64
	for _, m := range t.suspects {
		fields, err := gate.Fields(m.Mutation.Body)
		touches := err != nil || m.Mutation.Op != gate.OpUpdate
		for _, name := range names {
			_, set := fields[name]
			touches = touches || set
		}
		if touches {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func compensation(row Row) Row {
	row.Kind, row.Choice = RowCompensation, choiceRestore
	return row
}

func decision(row Row) Row {
	row.Kind, row.Choice = RowDecision, choiceKeep
	return row
}
