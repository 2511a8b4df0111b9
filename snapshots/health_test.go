package snapshots

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
)

func TestSignalLevels(t *testing.T) {
	now := start.Add(30 * 24 * time.Hour)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	seq := int64(4)
	for name, c := range map[string]struct {
		h     health
		since time.Time
		level gate.Level
		why   string
		from  time.Time
	}{
		"fresh":             {h: health{taken: ago(19 * time.Minute), first: ago(90 * time.Minute), head: 9}, level: gate.LevelOK, why: "fresh"},
		"late":              {h: health{taken: ago(20 * time.Minute), first: ago(time.Hour)}, level: gate.LevelCheck, why: "late", from: now},
		"nearly overdue":    {h: health{taken: ago(59 * time.Minute), first: ago(time.Hour)}, level: gate.LevelCheck, why: "late", from: now.Add(-39 * time.Minute)},
		"overdue":           {h: health{taken: ago(60 * time.Minute), first: ago(time.Hour)}, level: gate.LevelAct, why: "overdue", from: now},
		"broken":            {h: health{taken: ago(time.Minute), first: ago(time.Hour), verified: ago(time.Hour), broken: &seq}, level: gate.LevelAct, why: "broken", from: now.Add(-time.Hour)},
		"never verified":    {h: health{taken: ago(time.Minute), first: ago(48 * time.Hour)}, level: gate.LevelCheck, why: "unverified", from: now},
		"long not verified": {h: health{taken: ago(time.Minute), first: ago(400 * time.Hour), verified: ago(49 * time.Hour)}, level: gate.LevelCheck, why: "unverified", from: now.Add(-time.Hour)},
		"verified":          {h: health{taken: ago(time.Minute), first: ago(400 * time.Hour), verified: ago(47 * time.Hour)}, level: gate.LevelOK, why: "fresh"},
		"none yet":          {since: now.Add(-time.Hour), level: gate.LevelCheck, why: "none", from: now.Add(-time.Hour)},
		"none":              {since: now.Add(-61 * time.Minute), level: gate.LevelAct, why: "none", from: now.Add(-61 * time.Minute)},
	} {
		sig := c.h.signal(now, c.since)
		if sig.Level != c.level || sig.Why != c.why || !sig.Since.Equal(c.from) || sig.ID != gate.SignalSnapshot || !sig.CheckedAt.Equal(now) {
			t.Errorf("%s: %+v", name, sig)
		}
	}
}

func TestListsAndSearches(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	if sig, err := f.Signal(t.Context(), "care"); err != nil || sig.Why != "none" {
		t.Errorf("%+v, %v", sig, err)
	}
	if _, err := f.Signal(t.Context(), "nowhere"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("signal of an unknown integration: %v", err)
	}
	if _, _, err := f.LastGood(t.Context(), "care"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("last good of nothing: %v", err)
	}
	var muts []int64
	for range 4 { // snapshots at start, +15, +30 and +45 minutes
		muts = append(muts, f.reserve(gate.Committed))
		f.take()
		f.clock.Advance(15 * time.Minute)
	}
	f.desk.pairs = []gate.Pair{
		listedPair(1, gate.PairOpen, muts[1], muts[3]),
		listedPair(2, gate.PairDuplicate, muts[0], muts[2]),
		listedPair(3, gate.PairDistinct, muts[0], muts[1]),
	}
	if snap, pair, err := f.LastGood(t.Context(), "care"); err != nil || snap.Seq != 2 || pair.ID != 2 {
		t.Errorf("last good is %d because of pair %d, %v; want 2, pair 2", snap.Seq, pair.ID, err)
	}
	f.exec(`update snapshots set verify_error = 'body: gone' where seq = 2`)
	if snap, _, err := f.LastGood(t.Context(), "care"); err != nil || snap.Seq != 1 {
		t.Errorf("last good is %d, %v; want 1", snap.Seq, err)
	}
	f.desk.pairs = []gate.Pair{listedPair(4, gate.PairOpen, muts[0]-1, muts[0])}
	if _, pair, err := f.LastGood(t.Context(), "care"); !errors.Is(err, gate.ErrNotFound) || pair.ID != 4 {
		t.Errorf("pair %d, %v; want ErrNotFound beside pair 4", pair.ID, err)
	}
	f.desk.pairs = nil
	if snap, pair, err := f.LastGood(t.Context(), "care"); err != nil || snap.Seq != 4 || pair.ID != 0 {
		t.Errorf("last good is %d, pair %d, %v; want 4, none", snap.Seq, pair.ID, err)
	}
	for at, want := range map[time.Duration]int64{0: 0, time.Second: 1, 30 * time.Minute: 2, time.Hour: 4} {
		snap, err := f.Before(t.Context(), "care", start.Add(at))
		if snap.Seq != want || errors.Is(err, gate.ErrNotFound) != (want == 0) {
			t.Errorf("before +%v: %d, %v; want %d", at, snap.Seq, err, want)
		}
	}
	for _, c := range []struct {
		before int64
		limit  int
		want   []int64
	}{{0, 2, []int64{4, 3}}, {3, 2, []int64{2, 1}}, {1, 2, nil}, {0, 0, []int64{4, 3, 2, 1}}} {
		list, err := f.List(t.Context(), "care", c.before, c.limit)
		var got []int64
		for _, s := range list {
			got = append(got, s.Seq)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("list before %d: %v %s", c.before, err, diff)
		}
	}
	if _, err := f.Get(t.Context(), "care", 9); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if len(f.desk.touched) == 0 || f.desk.touched[0] != "care snapshots" {
		t.Errorf("touched %v", f.desk.touched)
	}
}

func listedPair(id int64, state gate.PairState, first, second int64) gate.Pair {
	return gate.Pair{ID: id, Integration: "care", State: state,
		First: gate.MutationRecord{ID: first}, Second: gate.MutationRecord{ID: second}}
}

func TestNewNamesAllThatIsMissing(t *testing.T) {
	_, err := New(Config{Retention: -1})
	if err == nil {
		t.Fatal("an empty configuration was taken")
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 7 {
		t.Errorf("%v", err)
	}
}
