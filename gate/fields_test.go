package gate_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
)

func raw(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}

func TestFieldsAndCompose(t *testing.T) {
	const text = `{"":1,"ID":"evt_2","a":{"x":[1,{"id":2}]},"id":"evt_1","é":null}`
	fields, err := gate.Fields(raw(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]json.RawMessage{
		"": raw("1"), "ID": raw(`"evt_2"`), "a": raw(`{"x":[1,{"id":2}]}`), "id": raw(`"evt_1"`), "é": raw("null"),
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	fields["gone"] = nil
	if got := gate.Compose(fields); string(got) != text {
		t.Errorf("composed %s", got)
	}
	if got := gate.Compose(nil); string(got) != "{}" {
		t.Errorf("nothing composed: %s", got)
	}
	unsorted, err := gate.Fields(raw(` {"b": {"d":1, "c":2.0}, "a": 1} `))
	if diff := cmp.Diff(map[string]json.RawMessage{"a": raw("1"), "b": raw(`{"c":2,"d":1}`)}, unsorted); diff != "" || err != nil {
		t.Errorf("unsorted input: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"", "[]", "1", `"{}"`, "null", `{"a":1,"a":2}`, `[{"a":1}]`} {
		if _, err := gate.Fields(raw(bad)); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The cases are those of RFC 7396, appendix A, and ours for an absent state.
func TestMerge(t *testing.T) {
	for _, test := range []struct{ state, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{``, `{"b":1,"a":{"x":null,"y":2}}`, `{"a":{"y":2},"b":1}`},
		{`{ "z":1.0 }`, `{"b":1e1}`, `{"b":10,"z":1}`},
	} {
		got, err := gate.Merge(raw(test.state), raw(test.patch))
		if err != nil || string(got) != test.want {
			t.Errorf("%s with %s: %s, %v, want %s", test.state, test.patch, got, err, test.want)
		}
	}
	for _, bad := range [][2]string{{"{", "{}"}, {"{}", "{"}, {"{}", ""}} {
		if _, err := gate.Merge(raw(bad[0]), raw(bad[1])); !errors.Is(err, gate.ErrMalformed) {
			t.Errorf("%q with %q: %v", bad[0], bad[1], err)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, test := range []struct {
		name, old, new string
		want           []gate.FieldDiff
	}{
		{"same", `{"a":1}`, `{"a":1}`, nil},
		{"both absent", ``, ``, nil},
		{"changed, added, removed", `{"a":1,"c":2,"d":3}`, `{"a":1,"b":4,"c":5}`, []gate.FieldDiff{
			{"b", nil, raw("4")}, {"c", raw("2"), raw("5")}, {"d", raw("3"), nil}}},
		{"null is not absent", `{"a":null}`, `{}`, []gate.FieldDiff{{"a", raw("null"), nil}}},
		{"created", ``, `{"b":1,"a":2}`, []gate.FieldDiff{{"a", nil, raw("2")}, {"b", nil, raw("1")}}},
		{"deleted", `{"a":1}`, ``, []gate.FieldDiff{{"a", raw("1"), nil}}},
		{"no object", `[1]`, `{"a":1}`, []gate.FieldDiff{{"", raw("[1]"), nil}, {"a", nil, raw("1")}}},
	} {
		if diff := cmp.Diff(test.want, gate.Diff(raw(test.old), raw(test.new))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		`"a\"b\n€"`: "a\"b\n€", `""`: "", "1.5": "1.5", "null": "null", `{"a":1}`: `{"a":1}`, "": "", `"broken`: `"broken`, `"a"b"`: `"a"b"`,
	} {
		if got := gate.Text(raw(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
