package snapshots

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluis/gate"
)

// memoryWorld is a snapshot's state in a map.
type memoryWorld map[entityKey]recorded

func (w memoryWorld) entity(k entityKey) (recorded, bool) { e, ok := w[k]; return e, ok }

func (w memoryWorld) keys() iter.Seq[entityKey] { return maps.Keys(w) }

func (w memoryWorld) size() int { return len(w) }

func visit(id string) entityKey { return entityKey{"visit", id} }

// mut is a committed mutation of a visit.
func mut(id int64, op gate.Op, entity, body string) *gate.MutationRecord {
	return &gate.MutationRecord{
		ID: id, Integration: "care", State: gate.Committed, Forwarded: true,
		Mutation: gate.Mutation{Op: op, Type: "visit", ID: entity, Subject: "client " + entity, Body: json.RawMessage(body)},
	}
}

func liveVisit(id string, version int64, state string) gate.Entity {
	return gate.Entity{Type: "visit", ID: id, Version: version, State: json.RawMessage(state), UpdatedBy: "hand"}
}

// brief is a row as the tables below write it.
func brief(r Row) string {
	if r.Op == opNone {
		return fmt.Sprintf("%s %s", r.Kind, r.EntityID)
	}
	return fmt.Sprintf("%s %s %s %s if %d %s undoes %v", r.Kind, r.Op, r.EntityID, r.Body, r.LiveVersion, r.Choice, r.Undoes)
}

func runPlan(t testing.TB, in planInput, live ...gate.Entity) plan {
	t.Helper()
	pl := newPlanner(in)
	for _, e := range live {
		if err := pl.see(e); err != nil {
			t.Fatal(err)
		}
	}
	p, err := pl.finish()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlanRules walks the rules of the three-way comparison, one entity each.
func TestPlanRules(t *testing.T) {
	start := memoryWorld{visit("A"): {State: json.RawMessage(`{"nurse":"n1","start":"08:00"}`), Subject: "client A"}}
	in := func(suspects []int64, log ...*gate.MutationRecord) planInput {
		in := planInput{Position: Position{Last: 10}, World: start}
		for _, m := range log {
			if slices.Contains(suspects, m.ID) {
				in.Suspects = append(in.Suspects, m)
			}
			if m.ID > 10 {
				in.Log = append(in.Log, m)
			}
		}
		return in
	}
	const stateA = `{"nurse":"n1","start":"08:00"}`
	tests := []struct {
		name string
		in   planInput
		live []gate.Entity
		want []string
	}{
		{"nothing suspected, nothing changed", in(nil), []gate.Entity{liveVisit("A", 1, stateA)}, nil},
		{"create undone", in([]int64{11}, mut(11, gate.OpCreate, "B", `{"nurse":"n2"}`)),
			[]gate.Entity{liveVisit("A", 1, stateA), liveVisit("B", 4, `{"nurse":"n2"}`)},
			[]string{"compensation delete B {} if 4 restore undoes [11]"}},
		{"create undone, already gone", in([]int64{11}, mut(11, gate.OpCreate, "B", `{"nurse":"n2"}`)),
			[]gate.Entity{liveVisit("A", 1, stateA)}, nil},
		{"create undone, changed by hand", in([]int64{11}, mut(11, gate.OpCreate, "B", `{"nurse":"n2"}`)),
			[]gate.Entity{liveVisit("A", 1, stateA), liveVisit("B", 5, `{"nurse":"n9"}`)},
			[]string{"decision delete B {} if 5 keep undoes [11]"}},
		{"create undone, changed later through the gate", in([]int64{11},
			mut(11, gate.OpCreate, "B", `{"nurse":"n2"}`), mut(12, gate.OpUpdate, "B", `{"nurse":"n3"}`)),
			[]gate.Entity{liveVisit("A", 1, stateA), liveVisit("B", 2, `{"nurse":"n3"}`)},
			[]string{"decision delete B {} if 2 keep undoes [11]"}},
		{"create older than the snapshot", in([]int64{5}, mut(5, gate.OpCreate, "A", stateA)),
			[]gate.Entity{liveVisit("A", 1, stateA)},
			[]string{"compensation delete A {} if 1 restore undoes [5]"}},
		{"update undone", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`)),
			[]gate.Entity{liveVisit("A", 2, `{"nurse":"n2","start":"08:00"}`)},
			[]string{`compensation update A {"nurse":"n1"} if 2 restore undoes [11]`}},
		{"update undone that added a field", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"note":"x"}`)),
			[]gate.Entity{liveVisit("A", 2, `{"note":"x","nurse":"n1","start":"08:00"}`)},
			[]string{`compensation update A {"note":null} if 2 restore undoes [11]`}},
		{"update undone, later one on another field survives", in([]int64{11},
			mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`), mut(12, gate.OpUpdate, "A", `{"start":"09:00"}`)),
			[]gate.Entity{liveVisit("A", 3, `{"nurse":"n2","start":"09:00"}`)},
			[]string{`compensation update A {"nurse":"n1"} if 3 restore undoes [11]`}},
		{"update overwritten by a later one", in([]int64{11},
			mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`), mut(12, gate.OpUpdate, "A", `{"nurse":"n3"}`)),
			[]gate.Entity{liveVisit("A", 3, `{"nurse":"n3","start":"08:00"}`)}, nil},
		{"update undone, the field changed by hand", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"nurse":"n2","start":"09:00"}`)),
			[]gate.Entity{liveVisit("A", 3, `{"nurse":"n9","start":"09:00"}`)},
			[]string{
				`compensation update A {"start":"08:00"} if 3 restore undoes [11]`,
				`decision update A {"nurse":"n1"} if 3 keep undoes [11]`,
			}},
		{"update undone, another field changed by hand", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`)),
			[]gate.Entity{liveVisit("A", 3, `{"nurse":"n2","start":"09:30"}`)},
			[]string{`compensation update A {"nurse":"n1"} if 3 restore undoes [11]`, "outside A"}},
		{"update undone by hand already", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`)),
			[]gate.Entity{liveVisit("A", 3, stateA)}, nil},
		{"update undone, entity removed by hand", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`)), nil,
			[]string{`decision create A {"nurse":"n1","start":"08:00"} if 0 keep undoes [11]`}},
		{"delete undone", in([]int64{11}, mut(11, gate.OpDelete, "A", `{}`)), nil,
			[]string{`compensation create A {"nurse":"n1","start":"08:00"} if 0 restore undoes [11]`}},
		{"delete undone, put back by hand", in([]int64{11}, mut(11, gate.OpDelete, "A", `{}`)),
			[]gate.Entity{liveVisit("A", 9, stateA)}, nil},
		{"delete undone, something else put there", in([]int64{11}, mut(11, gate.OpDelete, "A", `{}`)),
			[]gate.Entity{liveVisit("A", 9, `{"nurse":"n7","start":"08:00"}`)},
			[]string{`decision update A {"nurse":"n1"} if 9 keep undoes [11]`}},
		{"update older than the snapshot is residue", in([]int64{5}, mut(5, gate.OpUpdate, "A", `{"nurse":"n1"}`)),
			[]gate.Entity{liveVisit("A", 1, stateA)}, []string{"residue A"}},
		{"update older than the snapshot, set afresh since", in([]int64{5},
			mut(5, gate.OpUpdate, "A", `{"nurse":"n1"}`), mut(12, gate.OpUpdate, "A", `{"nurse":"n3"}`)),
			[]gate.Entity{liveVisit("A", 2, `{"nurse":"n3","start":"08:00"}`)}, nil},
		{"update of what the record never knew is residue", in([]int64{11}, mut(11, gate.OpUpdate, "Z", `{"nurse":"n1"}`)),
			[]gate.Entity{liveVisit("A", 1, stateA), liveVisit("Z", 3, `{"nurse":"n1"}`)}, []string{"residue Z"}},
		{"delete of what the record never knew is residue", in([]int64{11}, mut(11, gate.OpDelete, "Z", `{}`)),
			[]gate.Entity{liveVisit("A", 1, stateA)}, []string{"residue Z"}},
		{"made by hand", in(nil), []gate.Entity{liveVisit("A", 1, stateA), liveVisit("H", 1, `{}`)}, []string{"outside H"}},
		{"changed by hand", in(nil), []gate.Entity{liveVisit("A", 2, `{"nurse":"n5","start":"08:00"}`)}, []string{"outside A"}},
		{"removed by hand", in(nil), nil, []string{"outside A"}},
		{"null is absent", in(nil), []gate.Entity{liveVisit("A", 2, `{"note":null,"nurse":"n1","start":"08:00"}`)}, nil},
		{"last action first", in([]int64{11, 12, 13},
			mut(11, gate.OpCreate, "B", `{}`), mut(12, gate.OpUpdate, "A", `{"nurse":"n2"}`), mut(13, gate.OpCreate, "C", `{}`)),
			[]gate.Entity{liveVisit("A", 2, `{"nurse":"n2","start":"08:00"}`), liveVisit("B", 1, `{}`), liveVisit("C", 1, `{}`)},
			[]string{
				"compensation delete C {} if 1 restore undoes [13]",
				`compensation update A {"nurse":"n1"} if 2 restore undoes [12]`,
				"compensation delete B {} if 1 restore undoes [11]",
			}},
		{"nested fields", in([]int64{11}, mut(11, gate.OpUpdate, "A", `{"place":{"street":"x"}}`)),
			[]gate.Entity{liveVisit("A", 2, `{"nurse":"n1","place":{"street":"x"},"start":"08:00"}`)},
			[]string{`compensation update A {"place":null} if 2 restore undoes [11]`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range runPlan(t, tt.in, tt.live...).Rows {
				got = append(got, brief(r))
			}
			if d := gocmp.Diff(tt.want, got); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
		})
	}
}

func TestPlanFlagsContamination(t *testing.T) {
	drafted := mut(13, gate.OpUpdate, "A", `{"nurse":"n4"}`)
	drafted.Basis = &gate.Basis{Type: "visit", ID: "B", Version: 1}
	earlier := mut(11, gate.OpUpdate, "A", `{"nurse":"n3"}`)
	earlier.Basis = &gate.Basis{Type: "visit", ID: "B", Version: 1}
	suspect := mut(12, gate.OpCreate, "B", `{}`)
	own := mut(14, gate.OpUpdate, "B", `{"x":1}`)
	own.RollbackID = 3
	in := planInput{
		Position: Position{Last: 10}, World: memoryWorld{visit("A"): {State: json.RawMessage(`{}`)}},
		Log:      []*gate.MutationRecord{earlier, suspect, drafted, own, mut(15, gate.OpUpdate, "B", `{"y":1}`)},
		Suspects: []*gate.MutationRecord{suspect},
	}
	p := runPlan(t, in, liveVisit("A", 1, `{"nurse":"n4"}`), liveVisit("B", 3, `{"x":1,"y":1}`))
	if len(p.Rows) != 1 || p.Rows[0].Kind != RowDecision {
		t.Fatalf("rows: %v, want one decision", p.Rows)
	}
	if d := gocmp.Diff([]int64{13, 15}, p.Rows[0].Contaminated); d != "" {
		t.Errorf("contaminated (-want +got):\n%s", d)
	}
	if p.Summary.LaterKept != 3 {
		t.Errorf("later kept = %d, want 3: a rollback's own mutation is not one", p.Summary.LaterKept)
	}
}

// TestPlanTakesOlderTouchesAlong: an undone create that is older than the
// snapshot and was changed inside it is a decision too.
func TestPlanTakesOlderTouchesAlong(t *testing.T) {
	m := mut(5, gate.OpCreate, "A", `{"nurse":"n1"}`)
	in := planInput{
		Position: Position{Last: 10}, World: memoryWorld{visit("A"): {State: json.RawMessage(`{"nurse":"n2"}`)}},
		Suspects: []*gate.MutationRecord{m}, Between: map[entityKey][]int64{visit("A"): {7}},
	}
	p := runPlan(t, in, liveVisit("A", 2, `{"nurse":"n2"}`))
	if len(p.Rows) != 1 || p.Rows[0].Kind != RowDecision || !slices.Equal(p.Rows[0].Contaminated, []int64{7}) {
		t.Errorf("rows = %+v, want one decision contaminated by M-7", p.Rows)
	}
}

func TestPlanCatchesUp(t *testing.T) {
	in := planInput{Position: Position{Last: 10}, World: memoryWorld{visit("A"): {State: json.RawMessage(`{"nurse":"n1"}`)}}}
	pl := newPlanner(in)
	if err := pl.see(liveVisit("A", 2, `{"nurse":"n2"}`)); err != nil {
		t.Fatal(err)
	}
	if len(pl.found) != 1 {
		t.Fatal("a change that is not in the record yet looks like one by hand")
	}
	late := mut(11, gate.OpUpdate, "A", `{"nurse":"n2"}`)
	if !pl.add(late) || pl.add(late) {
		t.Error("a mutation is new once")
	}
	if err := pl.see(liveVisit("A", 2, `{"nurse":"n2"}`)); err != nil {
		t.Fatal(err)
	}
	p, err := pl.finish()
	if err != nil || len(p.Rows) != 0 {
		t.Errorf("rows = %v, %v; want none", p.Rows, err)
	}
}

func TestGroupKeys(t *testing.T) {
	in := planInput{Position: Position{Last: 10}, World: memoryWorld{}}
	var live []gate.Entity
	for i := range int64(4) {
		m := mut(11+i, gate.OpCreate, fmt.Sprintf("V/%d", i), `{"nurse":"n"}`)
		in.Log, in.Suspects = append(in.Log, m), append(in.Suspects, m)
		live = append(live, liveVisit(m.Mutation.ID, 1, `{"nurse":"n"}`))
	}
	live = append(live, liveVisit("H1", 1, `{"a":1}`), liveVisit("H2", 1, `{"b":1}`))
	p := runPlan(t, in, live...)
	keys := map[string]int{}
	for _, r := range p.Rows {
		keys[r.GroupKey]++
		if strings.ContainsAny(r.GroupKey, "/?#% ") {
			t.Errorf("group key %q is not safe in a path", r.GroupKey)
		}
	}
	if d := gocmp.Diff([]int{2, 4}, slices.Sorted(maps.Values(keys))); d != "" {
		t.Errorf("group sizes (-want +got):\n%s", d)
	}
	one := Row{Kind: RowCompensation, Op: gate.OpUpdate, EntityType: "visit", Body: json.RawMessage(`{"a":1}`)}
	two := one
	two.Body = json.RawMessage(`{"a":null}`)
	three := one
	three.Body = json.RawMessage(`{"b":1}`)
	if groupKey(one) != groupKey(two) || groupKey(one) == groupKey(three) {
		t.Error("updates are grouped by the fields that they set")
	}
}

func TestPlanHashIsOverMeaning(t *testing.T) {
	row := Row{Kind: RowCompensation, Op: gate.OpDelete, EntityType: "visit", EntityID: "B", Body: json.RawMessage(`{}`),
		Live: json.RawMessage(`{}`), LiveVersion: 4, Choice: choiceRestore, Undoes: []int64{11}}
	suspects := []Suspect{{Mutation: gate.MutationRecord{ID: 11}}, {Mutation: gate.MutationRecord{ID: 12}}}
	base := planHash("care", [32]byte{1}, suspects, []Row{row})
	shuffled := []Suspect{suspects[1], suspects[0]}
	outsider := Row{Kind: RowOutside, Op: opNone, EntityID: "H", Body: json.RawMessage(`{}`)}
	if planHash("care", [32]byte{1}, shuffled, []Row{row, outsider}) != base {
		t.Error("the order of suspects and what is only shown changed the hash")
	}
	told := row
	told.Detail, told.State, told.LiveBy = "x", RowApplied, "y"
	if planHash("care", [32]byte{1}, suspects, []Row{told}) != base {
		t.Error("a row's state changed the hash")
	}
	changes := map[string]func(*Row){
		"op": func(r *Row) { r.Op = gate.OpUpdate }, "entity": func(r *Row) { r.EntityID = "C" },
		"type": func(r *Row) { r.EntityType = "c" }, "body": func(r *Row) { r.Body = json.RawMessage(`{"a":1}`) },
		"precondition": func(r *Row) { r.LiveVersion = 5 }, "absence": func(r *Row) { r.Live = nil },
		"choice": func(r *Row) { r.Choice = choiceKeep }, "undoes": func(r *Row) { r.Undoes = []int64{12} },
	}
	for name, change := range changes {
		other := row
		change(&other)
		if planHash("care", [32]byte{1}, suspects, []Row{other}) == base {
			t.Errorf("another %s has the same hash", name)
		}
	}
	if planHash("care", [32]byte{2}, suspects, []Row{row}) == base || planHash("b", [32]byte{1}, suspects, []Row{row}) == base ||
		planHash("care", [32]byte{1}, suspects[:1], []Row{row}) == base {
		t.Error("another snapshot, integration or list of suspects has the same hash")
	}
}

func TestRollbackStates(t *testing.T) {
	states := []RollbackState{RollbackPlanning, RollbackReady, RollbackApproved, RollbackApplying, RollbackStopped,
		RollbackApplied, RollbackFailed, RollbackExpired, RollbackCancelled}
	events := []rollbackEvent{evPlanned, evPlanFailed, evChoose, evApprove, evMoved, evExpire, evCancel, evStart, evStop, evResume, evFinish}
	legal := strings.Fields(`
		planning+planned=ready planning+plan_failed=failed planning+cancel=cancelled
		ready+choose=ready ready+approve=approved ready+moved=cancelled ready+expire=expired ready+cancel=cancelled
		approved+start=applying approved+cancel=cancelled
		applying+stop=stopped applying+finish=applied
		stopped+resume=applying stopped+cancel=cancelled`)
	var got []string
	for _, s := range states {
		for _, ev := range events {
			to, err := s.next(ev)
			if (err != nil) != (to == s && ev != evChoose || s != RollbackReady && ev == evChoose) {
				t.Errorf("%s + %s = %s, %v", s, ev, to, err)
			}
			if err == nil {
				got = append(got, fmt.Sprintf("%s+%s=%s", s, ev, to))
			}
		}
	}
	slices.Sort(got)
	slices.Sort(legal)
	if d := gocmp.Diff(legal, got); d != "" {
		t.Errorf("moves (-want +got):\n%s", d)
	}
}

// largeNight is 100 thousand entities and 10 thousand mutations after the
// snapshot, every second one a suspect.
func largeNight() (planInput, []gate.Entity) {
	in := planInput{Position: Position{Last: 10}, World: memoryWorld{}}
	state := func(i int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"client":"C%d","nurse":"n%d","start":"08:00"}`, i%90, i%24))
	}
	live := make([]gate.Entity, 0, 110_000)
	for i := range 100_000 {
		id := fmt.Sprintf("V%06d", i)
		in.World.(memoryWorld)[visit(id)] = recorded{State: state(i)}
		live = append(live, liveVisit(id, 1, string(state(i))))
	}
	for i := range 10_000 {
		m := mut(int64(11+i), gate.OpCreate, fmt.Sprintf("W%06d", i), string(state(i)))
		in.Log = append(in.Log, m)
		if i%2 == 0 {
			in.Suspects = append(in.Suspects, m)
		}
		live = append(live, liveVisit(m.Mutation.ID, 1, string(state(i))))
	}
	return in, live
}

// TestPlanSize is the budget's size; BenchmarkPlan is its time and memory.
func TestPlanSize(t *testing.T) {
	in, live := largeNight()
	p := runPlan(t, in, live...)
	want := Summary{Compensations: 5000, LaterKept: 5000, Checked: 110_000, ByOp: map[string]int{"delete": 5000}, Subjects: 5000}
	if d := gocmp.Diff(want, p.Summary); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
	if !slices.IsSortedFunc(p.Rows, func(a, b Row) int { return cmp.Compare(b.Undoes[0], a.Undoes[0]) }) {
		t.Error("not last action first")
	}
}

func BenchmarkPlan(b *testing.B) {
	in, live := largeNight()
	b.ReportAllocs()
	for b.Loop() {
		pl := newPlanner(in)
		for _, e := range live {
			if err := pl.see(e); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := pl.finish(); err != nil {
			b.Fatal(err)
		}
	}
}
