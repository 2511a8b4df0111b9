package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate/audit"
	"sluis/migrations/testdb"
)

var night = time.Date(2025, 10, 26, 0, 47, 0, 123456000, time.UTC)

func entry(object string) audit.Entry {
	return audit.Entry{
		At: night, ActorKind: "person", Actor: "marieke", Integration: "care",
		Action: "quarantine.release", Object: object, Detail: map[string]any{"note": "<b> & é", "version": 3},
	}
}

func appendAll(t *testing.T, pool *pgxpool.Pool, entries ...audit.Entry) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return audit.Append(t.Context(), tx, entries...)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, pool *pgxpool.Pool) audit.Head {
	t.Helper()
	head, err := audit.Link(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func list(t *testing.T, pool *pgxpool.Pool, f audit.Filter) []audit.Record {
	t.Helper()
	records, err := audit.List(t.Context(), pool, f)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func objects(records []audit.Record) string {
	var names []string
	for _, r := range records {
		names = append(names, r.Object)
	}
	return strings.Join(names, " ")
}

func TestAppendKeepsEveryColumnInOrder(t *testing.T) {
	pool := testdb.Pool(t)
	appendAll(t, pool, entry("Q-1"), entry("Q-2"))
	want := audit.Record{
		At: night, ActorKind: "person", Actor: "marieke", Integration: "care",
		Action: "quarantine.release", Detail: json.RawMessage(`{"note":"<b> & é","version":3}`),
	}
	first, second := want, want
	first.Object, second.Object = "Q-1", "Q-2"
	got := list(t, pool, audit.Filter{})
	if diff := cmp.Diff([]audit.Record{second, first}, got, cmpopts.IgnoreFields(audit.Record{}, "ID")); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if got[0].ID <= got[1].ID {
		t.Errorf("ids %d, %d: not in the order of the entries", got[1].ID, got[0].ID)
	}
}

func TestAppendStoresWhatAHostileNameSends(t *testing.T) {
	pool := testdb.Pool(t)
	e := entry("a\x00b\xff")
	e.Actor = "\x00"
	e.Detail = map[string]any{"k\x00": []any{"v\x00", map[string]any{"x": "\xff"}, `\u0000`}, "n": 9007199254740993}
	appendAll(t, pool, e)
	got := list(t, pool, audit.Filter{})[0]
	if got.Object != "a\ufffdb\ufffd" || got.Actor != "\ufffd" {
		t.Errorf("object %q, actor %q", got.Object, got.Actor)
	}
	want := `{"k` + "\ufffd" + `":["v` + "\ufffd" + `",{"x":"` + "\ufffd" + `"},"\\u0000"],"n":9007199254740993}`
	if string(got.Detail) != want {
		t.Errorf("detail %s, want %s", got.Detail, want)
	}
}

func TestAppendCutsALargeDetailDown(t *testing.T) {
	pool := testdb.Pool(t)
	large := entry("large")
	large.Detail = map[string]any{"body": strings.Repeat("x", 20<<10), "note": "kept"}
	many := entry("many")
	many.Detail = map[string]any{}
	for i := range 1000 {
		many.Detail[fmt.Sprint(i)] = "0123456789abcdef"
	}
	exact := entry("exact")
	exact.Detail = map[string]any{"body": strings.Repeat("x", 16<<10-len(`{"body":""}`))}
	appendAll(t, pool, large, many, exact)
	got := list(t, pool, audit.Filter{})
	if len(got[0].Detail) != 16<<10 {
		t.Errorf("a detail of exactly 16 KiB became %d bytes", len(got[0].Detail))
	}
	if s := string(got[1].Detail); !strings.HasPrefix(s, `{"left_out_bytes":`) || len(s) > 200 {
		t.Errorf("many: %.200s", s)
	}
	if s := string(got[2].Detail); !strings.HasPrefix(s, `{"body":{"left_out_bytes":20482,`) || !strings.HasSuffix(s, `,"note":"kept"}`) {
		t.Errorf("large: %.200s", s)
	}
}

func TestAppendRefusesADetailThatIsNoJSON(t *testing.T) {
	pool := testdb.Pool(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		e := entry("Q-1")
		e.Detail = map[string]any{"f": func() {}}
		return audit.Append(t.Context(), tx, e)
	})
	var unsupported *json.UnsupportedTypeError
	if !errors.As(err, &unsupported) {
		t.Errorf("error %v", err)
	}
}

func TestARolledBackActionLeavesNoRecord(t *testing.T) {
	pool := testdb.Pool(t)
	fault := errors.New("fault")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := audit.Append(t.Context(), tx, entry("gone")); err != nil {
			return err
		}
		return fault
	})
	if !errors.Is(err, fault) {
		t.Fatal(err)
	}
	appendAll(t, pool, entry("kept"))
	if head := link(t, pool); head.Pos != 1 {
		t.Errorf("head at %d: a position was lost to the rolled back record", head.Pos)
	}
}

func TestListFilters(t *testing.T) {
	pool := testdb.Pool(t)
	var entries []audit.Entry
	for i := range 6 {
		e := entry(fmt.Sprintf("Q-%d", i))
		e.At = night.Add(time.Duration(i) * time.Hour)
		entries = append(entries, e)
	}
	entries[1].Actor, entries[2].Integration, entries[3].Action = "joost", "terminal", "mode.set"
	appendAll(t, pool, entries...)
	link(t, pool)
	all := list(t, pool, audit.Filter{})
	for _, test := range []struct {
		name   string
		filter audit.Filter
		want   string
	}{
		{"all", audit.Filter{}, "Q-5 Q-4 Q-3 Q-2 Q-1 Q-0"},
		{"actor", audit.Filter{Actor: "joost"}, "Q-1"},
		{"integration", audit.Filter{Integration: "terminal"}, "Q-2"},
		{"action", audit.Filter{Action: "mode.set"}, "Q-3"},
		{"object", audit.Filter{Object: "Q-4"}, "Q-4"},
		{"from is inclusive, to is not", audit.Filter{From: entries[1].At, To: entries[3].At}, "Q-2 Q-1"},
		{"page", audit.Filter{Limit: 2}, "Q-5 Q-4"},
		{"next page", audit.Filter{Limit: 2, Before: all[1].ID}, "Q-3 Q-2"},
		{"together", audit.Filter{Actor: "marieke", Integration: "care", From: entries[4].At}, "Q-5 Q-4"},
		{"none", audit.Filter{Object: "Q-9"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := objects(list(t, pool, test.filter)); got != test.want {
				t.Errorf("List: %s, want %s", got, test.want)
			}
			if test.filter.Limit > 0 {
				return
			}
			var each []audit.Record
			err := audit.Each(t.Context(), pool, test.filter, func(r audit.Record) error {
				each = append(each, r)
				return nil
			})
			if err != nil || objects(each) != test.want {
				t.Errorf("Each: %s, %v, want %s", objects(each), err, test.want)
			}
		})
	}
}

func TestEachStopsAtAnErrorAndFreesItsConnection(t *testing.T) {
	pool := testdb.Pool(t)
	appendAll(t, pool, entry("Q-1"), entry("Q-2"))
	full, calls := errors.New("disk full"), 0
	err := audit.Each(t.Context(), pool, audit.Filter{}, func(audit.Record) error {
		calls++
		return full
	})
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections still held", n)
	}
}

func TestReadsReportABrokenConnection(t *testing.T) {
	pool := testdb.Pool(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, read := range map[string]func() error{
		"head":   func() error { _, err := audit.CurrentHead(ctx, pool); return err },
		"link":   func() error { _, err := audit.Link(ctx, pool); return err },
		"verify": func() error { _, err := audit.Verify(ctx, pool, audit.Head{}); return err },
		"list":   func() error { _, err := audit.List(ctx, pool, audit.Filter{}); return err },
		"each": func() error {
			return audit.Each(ctx, pool, audit.Filter{}, func(audit.Record) error { return nil })
		},
	} {
		if err := read(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
