package gate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/gatetest"
)

func TestHeldDeliveries(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	receive := func(raw string) gate.Item {
		t.Helper()
		r, err := w.Gate.Receive(t.Context(), gate.Agent("provider"), gatetest.Care, []byte(raw))
		if err != nil || r.Item == 0 {
			t.Fatalf("receipt %+v, %v", r, err)
		}
		return item(t, w, r.Item)
	}
	state := func(event string) (s string) {
		t.Helper()
		if err := w.Pool.QueryRow(t.Context(), `select state from events where event_id = $1`, event).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := receive(`{"account":"home","event_id":"evt-1","occurred_at":"2025-10-27T06:00:00Z"}`)
	if good.Delivery == nil || good.Mutation != nil || good.Delivery.Event.ID != "evt-1" || good.Reason != gate.ReasonSkew {
		t.Fatalf("item %+v", good)
	}
	w.Clock.Set(release(t, w, good).ReleaseAt)
	if err := w.Gate.FinishRelease(t.Context(), good.ID); err != nil {
		t.Fatal(err)
	}
	if got := item(t, w, good.ID); got.State != gate.ItemReleased || got.Outcome != "stored" || state("evt-1") != "stored" {
		t.Errorf("released: %s, %q, the event is %s", got.State, got.Outcome, state("evt-1"))
	}
	bad := receive(`{"account":"home","event_id":"evt-2","occurred_at":"2025-10-27T06:00:00Z"}`)
	if _, err := w.Gate.Reject(t.Context(), bert, bad.ID, bad.Version, "not ours"); err != nil || state("evt-2") != "rejected" {
		t.Errorf("rejected: %v, the event is %s", err, state("evt-2"))
	}
	torn := receive(`{"account":`)
	if _, err := w.Gate.Release(t.Context(), anna, torn.ID, torn.Version, "yes"); !errors.Is(err, gate.ErrMalformed) {
		t.Errorf("a delivery that nobody can read was released: %v", err)
	}
	if got := item(t, w, torn.ID); got.State != gate.ItemOpen || got.Version != torn.Version {
		t.Errorf("the refused release left %s at version %d", got.State, got.Version)
	}
}

func TestItemsAreListed(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	var all []int64
	for i := range 7 {
		all = append(all, held(t, w, fmt.Sprintf("evt-%d", i)).ID)
	}
	first := item(t, w, all[0])
	if _, err := w.Gate.Reject(t.Context(), bert, first.ID, first.Version, "no"); err != nil {
		t.Fatal(err)
	}
	release(t, w, item(t, w, all[3]))
	tests := map[string]struct {
		filter gate.ItemFilter
		want   []int64
	}{
		"all":              {gate.ItemFilter{}, []int64{all[6], all[5], all[4], all[3], all[2], all[1], all[0]}},
		"open":             {gate.ItemFilter{States: []gate.ItemState{gate.ItemOpen}}, []int64{all[6], all[5], all[4], all[2], all[1]}},
		"two states":       {gate.ItemFilter{States: []gate.ItemState{gate.ItemReleasing, gate.ItemRejected}}, []int64{all[3], all[0]}},
		"page":             {gate.ItemFilter{Before: all[4], Limit: 2}, []int64{all[3], all[2]}},
		"cut off":          {gate.ItemFilter{UpTo: all[1]}, []int64{all[1], all[0]}},
		"reason":           {gate.ItemFilter{Reason: gate.ReasonSkew, Limit: 1}, []int64{all[6]}},
		"no such reason":   {gate.ItemFilter{Reason: gate.ReasonFrozen}, nil},
		"search event":     {gate.ItemFilter{Search: "evt-2"}, []int64{all[2]}},
		"search subject":   {gate.ItemFilter{Search: "C-1", Limit: 2}, []int64{all[6], all[5]}},
		"search nothing":   {gate.ItemFilter{Search: "evt"}, nil},
		"search not UTF-8": {gate.ItemFilter{Search: "\xff"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.filter.Integration = gatetest.Care
			items, err := w.Gate.Items(t.Context(), tt.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, it := range items {
				if it.Mutation == nil {
					t.Errorf("item %d comes without its mutation", it.ID)
				}
				got = append(got, it.ID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			n, err := w.Gate.CountItems(t.Context(), tt.filter)
			if err != nil || tt.filter.Limit == 0 && int(n) != len(tt.want) {
				t.Errorf("counted %d, %v", n, err)
			}
		})
	}
}

func TestNextItem(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	type answer struct {
		Next            int64
		Position, Total int
	}
	next := func(after int64) answer {
		t.Helper()
		n, position, total, err := w.Gate.NextItem(t.Context(), gatetest.Care, after)
		if err != nil {
			t.Fatal(err)
		}
		return answer{n, position, total}
	}
	if got := next(0); got != (answer{}) {
		t.Errorf("no items: %+v", got)
	}
	a, b, c := held(t, w, "evt-1"), held(t, w, "evt-2"), held(t, w, "evt-3")
	for after, want := range map[int64]answer{0: {a.ID, 0, 3}, a.ID: {b.ID, 1, 3}, b.ID: {c.ID, 2, 3}, c.ID: {a.ID, 3, 3}} {
		if got := next(after); got != want {
			t.Errorf("after %d: %+v, want %+v", after, got, want)
		}
	}
	if _, err := w.Gate.Reject(t.Context(), anna, b.ID, b.Version, "no"); err != nil {
		t.Fatal(err)
	}
	if got, want := next(b.ID), (answer{c.ID, 0, 2}); got != want {
		t.Errorf("after a decided one: %+v, want %+v", got, want)
	}
}
