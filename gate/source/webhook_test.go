package source_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/source"
)

func TestIdentify(t *testing.T) {
	nested := source.Webhook{AccountPtr: "/a~1b/0/m~0n", EventIDPtr: "/~01", OccurredPtr: "/list/1", KindPtr: ""}
	for name, tc := range map[string]struct {
		hook source.Webhook
		raw  string
		want gate.EventRef
		kind string
	}{
		"care": {source.Care(), `{"account":"t","event_id":"e1","kind":"k","occurred_at":"2025-10-26T02:47:00+02:00"}`,
			gate.EventRef{Account: "t", ID: "e1", OccurredAt: "2025-10-26T02:47:00+02:00"}, "k"},
		"missing":         {source.Care(), `{"account":"t"}`, gate.EventRef{Account: "t"}, ""},
		"not an object":   {source.Care(), `[1]`, gate.EventRef{}, ""},
		"other case":      {source.Care(), `{"Account":"t","EVENT_ID":"e"}`, gate.EventRef{}, ""},
		"number as id":    {source.Care(), `{"event_id":9007199254740993}`, gate.EventRef{ID: "9007199254740993"}, ""},
		"wrong sorts":     {source.Care(), `{"account":{},"event_id":null,"kind":[],"occurred_at":true}`, gate.EventRef{}, ""},
		"escaped strings": {source.Care(), `{"event_id":"a\"\u0001"}`, gate.EventRef{ID: "a\"\u0001"}, ""},
		"pointers": {nested, `{"a/b":[{"m~n":"acc"}],"list":["no","at"],"~1":"id"}`,
			gate.EventRef{Account: "acc", ID: "id", OccurredAt: "at"}, ""},
		"index out of range": {nested, `{"list":["no"],"a/b":[]}`, gate.EventRef{}, ""},
		"index with zeros":   {source.Webhook{EventIDPtr: "/01"}, `["a","b"]`, gate.EventRef{}, ""},
		"through a string":   {source.Webhook{EventIDPtr: "/a/b"}, `{"a":"b"}`, gate.EventRef{}, ""},
		"empty":              {source.Care(), ``, gate.EventRef{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, kind := tc.hook.Identify(json.RawMessage(tc.raw))
			if diff := cmp.Diff(tc.want, got); diff != "" || kind != tc.kind {
				t.Errorf("kind %q, want %q; reference (-want +got):\n%s", kind, tc.kind, diff)
			}
		})
	}
}

func TestPointersAreChecked(t *testing.T) {
	if err := source.Care().Validate(); err != nil {
		t.Errorf("care: %v", err)
	}
	for _, p := range []string{"event_id", "/a~2", "/a~"} {
		if err := (source.Webhook{EventIDPtr: p}).Validate(); err == nil {
			t.Errorf("%q is taken for a pointer", p)
		}
	}
}
