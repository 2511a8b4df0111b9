package views

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewDiff(t *testing.T) {
	now := json.RawMessage(`{"status":"planned","start":"02:30","nurse":"M. de Vries","round":9007199254740993,"route":{"id":"R-118"}}`)
	then := json.RawMessage(`{"status":"confirmed","nurse":"M. de Vries","round":9007199254740993,"route":{"id":"R-118"},"note":""}`)
	got := NewDiff("care", []string{"now", "then"}, now, then)
	want := Diff{Caption: "care", Columns: []string{"now", "then"},
		Changed: []DiffField{
			{Name: "note", Cells: []DiffCell{{Absent: true}, {Mark: MarkAdded, New: true}}},
			{Name: "start", Cells: []DiffCell{{Text: "02:30", Old: true}, {Absent: true, Mark: MarkRemoved}}},
			{Name: "status", Cells: []DiffCell{{Text: "planned", Old: true}, {Text: "confirmed", Mark: MarkChanged, New: true}}},
		},
		Equal: []DiffField{
			{Name: "nurse", Cells: []DiffCell{{Text: "M. de Vries"}, {Text: "M. de Vries"}}},
			{Name: "round", Cells: []DiffCell{{Text: "9007199254740993"}, {Text: "9007199254740993"}}},
			{Name: "route.id", Cells: []DiffCell{{Text: "R-118"}, {Text: "R-118"}}},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestNewDiffComparesTwinWithSecondColumn(t *testing.T) {
	d := NewDiff("", []string{"now", "this", "twin"}, nil, json.RawMessage(`{"a":1,"b":2}`), json.RawMessage(`{"a":1,"b":3}`))
	if len(d.Changed) != 2 {
		t.Fatalf("changed %v", d.Changed)
	}
	a, b := d.Changed[0], d.Changed[1]
	if a.Cells[1].Mark != MarkAdded || a.Cells[2].Mark != "" || b.Cells[2].Mark != MarkChanged {
		t.Errorf("a %v, b %v", a, b)
	}
}

func TestFlattenOfWhatIsNoObject(t *testing.T) {
	for in, want := range map[string]map[string]string{
		``:             {},
		`{}`:           {},
		`not json`:     {"": "not json"},
		`[1, 2]`:       {"": "[1,2]"},
		`{"a":[1, 2]}`: {"a": "[1,2]"},
		`{"a":null}`:   {"a": "null"},
		`{"a":{}}`:     {"a": "{}"},
	} {
		if d := cmp.Diff(want, Flatten(json.RawMessage(in))); d != "" {
			t.Errorf("%s: %s", in, d)
		}
	}
}
