package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// FieldDiff is one field that differs between two states; nil is absent,
// which is not the same as null.
type FieldDiff struct {
	Name     string
	Old, New json.RawMessage
}

// Fields splits an object into its members by exact name; their values are
// canonical. A document that is no object, or that Canonical would refuse, is
// a *ParseError.
func Fields(obj json.RawMessage) (map[string]json.RawMessage, error) {
	p := parser{raw: obj, out: make([]byte, 0, len(obj))}
	if err := p.document(); err != nil {
		return nil, err
	}
	if p.out[0] != '{' {
		return nil, &ParseError{ReasonMalformedBody, 0, "send an object here"}
	}
	fields := make(map[string]json.RawMessage, len(p.top))
	for _, m := range p.top {
		fields[m.name] = slices.Clip(p.out[m.value:m.end])
	}
	return fields, nil
}

// Compose is the inverse of Fields: the canonical object with these members.
// Values must be canonical; a nil value is an absent member.
func Compose(fields map[string]json.RawMessage) json.RawMessage {
	size := 2
	for name, value := range fields {
		size += len(name) + len(value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	for _, name := range slices.SortedFunc(maps.Keys(fields), compareUTF16) {
		if fields[name] == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		out = append(out, fields[name]...)
	}
	return append(out, '}')
}

// Merge applies patch to state by RFC 7396 and returns the canonical result: a
// member that is null in the patch is removed, an object is merged, anything
// else replaces. A nil state is an absent entity.
func Merge(state, patch json.RawMessage) (json.RawMessage, error) {
	changes, err := Canonical(patch, 0)
	if err != nil {
		return nil, fmt.Errorf("merge patch: %w", err)
	}
	if len(state) == 0 {
		state = json.RawMessage("{}")
	}
	current, err := Canonical(state, 0)
	if err != nil {
		return nil, fmt.Errorf("merge state: %w", err)
	}
	return merge(current, changes)
}

// merge is the function MergePatch of RFC 7396 section 2 over canonical text.
func merge(state, patch json.RawMessage) (json.RawMessage, error) {
	if !isObject(patch) {
		return patch, nil
	}
	fields := map[string]json.RawMessage{}
	if isObject(state) {
		var err error
		if fields, err = Fields(state); err != nil {
			return nil, err
		}
	}
	changes, err := Fields(patch)
	if err != nil {
		return nil, err
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(fields, name)
			continue
		}
		if fields[name], err = merge(fields[name], change); err != nil {
			return nil, err
		}
	}
	return Compose(fields), nil
}

// Diff lists the fields in which two canonical states differ, by name. A nil
// state is an absent entity and has no fields; a state that is no object is
// one field without a name.
func Diff(old, new json.RawMessage) []FieldDiff {
	before, after := stateFields(old), stateFields(new)
	names := maps.Clone(before)
	maps.Copy(names, after)
	var diffs []FieldDiff
	for _, name := range slices.SortedFunc(maps.Keys(names), compareUTF16) {
		if b, a := before[name], after[name]; b == nil || a == nil || !bytes.Equal(b, a) {
			diffs = append(diffs, FieldDiff{Name: name, Old: b, New: a})
		}
	}
	return diffs
}

func stateFields(state json.RawMessage) map[string]json.RawMessage {
	if len(state) == 0 {
		return map[string]json.RawMessage{}
	}
	fields, err := Fields(state)
	if err != nil {
		return map[string]json.RawMessage{"": state}
	}
	return fields
}

// Text is what a person reads of a value: a string's content, else the JSON
// text. Absent is empty.
func Text(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '"' {
		return string(raw)
	}
	p := parser{raw: raw}
	s, err := p.scanString()
	if err != nil || p.pos != len(raw) {
		return string(raw)
	}
	return string(s)
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
