package views

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Marks of a field in a diff: they say without colour what happened to it.
const (
	MarkAdded   = "+"
	MarkRemoved = "−"
	MarkChanged = "≠"
)

// Diff compares documents field by field: the first column is what is, the
// second what would be, further columns (a twin) are there to compare with.
// Fields that differ come first; both lists are in the order of their names,
// which is the same each time.
type Diff struct {
	Caption string
	Columns []string // heads, without the field's
	Changed []DiffField
	Equal   []DiffField
}

// DiffField is one field of a Diff with a cell for each column.
type DiffField struct {
	Name  string
	Cells []DiffCell
}

// DiffCell is the value of a field in one document.
type DiffCell struct {
	Text   string
	Absent bool   // the document does not have the field
	Mark   string // "", or how it differs
	Old    bool   // the value that goes away
	New    bool   // the value that comes
}

// Empty reports whether there is no field at all.
func (d Diff) Empty() bool { return len(d.Changed)+len(d.Equal) == 0 }

// NewDiff compares the documents, one for each column. A nil document is an
// entity that does not exist. Nested objects read as "visit.start"; a document
// that is not an object is shown whole as one field without a name.
func NewDiff(caption string, columns []string, documents ...json.RawMessage) Diff {
	d := Diff{Caption: caption, Columns: columns}
	flat := make([]map[string]string, len(documents))
	var names []string
	for i, document := range documents {
		flat[i] = Flatten(document)
		for name := range flat[i] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f, differs := diffField(name, flat)
		if differs {
			d.Changed = append(d.Changed, f)
		} else {
			d.Equal = append(d.Equal, f)
		}
	}
	return d
}

func diffField(name string, flat []map[string]string) (DiffField, bool) {
	f := DiffField{Name: name, Cells: make([]DiffCell, len(flat))}
	differs := false
	for i, document := range flat {
		text, has := document[name]
		f.Cells[i] = DiffCell{Text: text, Absent: !has}
		if i == 0 {
			continue
		}
		// The second column differs from the first, a twin from the second.
		against := f.Cells[min(i-1, 1)]
		f.Cells[i].Mark = mark(against, f.Cells[i])
		differs = differs || f.Cells[i].Mark != ""
	}
	if len(f.Cells) > 1 && f.Cells[1].Mark != "" {
		f.Cells[0].Old = !f.Cells[0].Absent
		f.Cells[1].New = !f.Cells[1].Absent
	}
	return f, differs
}

func mark(was, is DiffCell) string {
	switch {
	case was.Absent && is.Absent:
		return ""
	case was.Absent:
		return MarkAdded
	case is.Absent:
		return MarkRemoved
	case was.Text != is.Text:
		return MarkChanged
	}
	return ""
}

// Flatten reads a JSON document as fields and their text. Numbers keep the
// digits that they were written with.
func Flatten(document json.RawMessage) map[string]string {
	fields := map[string]string{}
	if len(bytes.TrimSpace(document)) == 0 {
		return fields
	}
	flatten(fields, nil, document)
	return fields
}

func flatten(fields map[string]string, path []string, document json.RawMessage) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(document, &object); err == nil && len(object) > 0 {
		for name, value := range object {
			flatten(fields, append(path[:len(path):len(path)], name), value)
		}
		return
	}
	if len(path) == 0 && object != nil {
		return
	}
	fields[strings.Join(path, ".")] = scalar(document)
}

// scalar is a value as a person reads it: a string without its quotes, anything
// else as compact JSON.
func scalar(document json.RawMessage) string {
	var text string
	if json.Unmarshal(document, &text) == nil && bytes.HasPrefix(bytes.TrimSpace(document), []byte{'"'}) {
		return text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, document) != nil {
		return string(document)
	}
	return compact.String()
}
