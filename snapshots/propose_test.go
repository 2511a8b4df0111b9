package snapshots

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluis/gate"
)

func repeatOf(id int64, first, second *gate.MutationRecord, firstTouched, secondTouched int) gate.Pair {
	return gate.Pair{ID: id, State: gate.PairOpen, First: *first, Second: *second, FirstTouched: firstTouched, SecondTouched: secondTouched}
}

func TestPropose(t *testing.T) {
	a, b, c := mut(1, gate.OpCreate, "A", `{}`), mut(2, gate.OpCreate, "B", `{}`), mut(3, gate.OpCreate, "C", `{}`)
	u1, u2 := mut(4, gate.OpUpdate, "A", `{"n":1}`), mut(5, gate.OpUpdate, "A", `{"n":1}`)
	undone := mut(6, gate.OpCreate, "D", `{}`)
	undone.State = gate.RolledBack
	tests := []struct {
		name      string
		pairs     []gate.Pair
		suspects  []string // id<twin
		undecided []int64
	}{
		{"neither touched: the later copy", []gate.Pair{repeatOf(1, a, b, 0, 0)}, []string{"2<1"}, nil},
		{"first touched: the later copy", []gate.Pair{repeatOf(1, a, b, 1, 0)}, []string{"2<1"}, nil},
		{"second touched: the earlier copy", []gate.Pair{repeatOf(1, a, b, 0, 2)}, []string{"1<2"}, nil},
		{"both touched: a person says", []gate.Pair{repeatOf(1, a, b, 1, 1)}, nil, []int64{1}},
		{"three copies, none touched", []gate.Pair{repeatOf(1, a, b, 0, 0), repeatOf(2, b, c, 0, 0)}, []string{"2<1", "3<1"}, nil},
		{"three copies, the middle touched", []gate.Pair{repeatOf(1, a, b, 0, 1), repeatOf(2, b, c, 1, 0)}, []string{"1<2", "3<2"}, nil},
		{"three copies, the outer ones touched", []gate.Pair{repeatOf(1, a, b, 1, 0), repeatOf(2, b, c, 0, 1)}, []string{"2<1"}, []int64{1}},
		{"one entity: the repeat, whatever touched it", []gate.Pair{repeatOf(1, u1, u2, 2, 1)}, []string{"5<4"}, nil},
		{"a copy that is undone already", []gate.Pair{repeatOf(1, a, undone, 0, 0)}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := propose(tt.pairs)
			var suspects []string
			for _, s := range p.Suspects {
				suspects = append(suspects, fmt.Sprintf("%d<%d", s.Mutation.ID, s.Twin))
				if s.Source != sourcePair || s.PairID == 0 {
					t.Errorf("suspect M-%d has source %q and pair %d", s.Mutation.ID, s.Source, s.PairID)
				}
			}
			var undecided []int64
			for _, p := range p.Undecided {
				undecided = append(undecided, p.ID)
			}
			if d := gocmp.Diff(tt.suspects, suspects) + gocmp.Diff(tt.undecided, undecided); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
