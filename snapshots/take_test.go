package snapshots

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/snapshots/objectstore"
)

func TestTakeSealsTheWorld(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	m := f.reserve(gate.Committed)
	f.put("visit", "V-2", `{"nurse":"Bé","seconds":9007199254740993}`, m)
	f.put("visit", "V-10", `{"nurse":"N-2"}`, 0)
	f.put("Visit", "z", `{}`, 0) // upper case sorts first by bytes, not in most collations
	f.put("visit", "V-\"1\"\n", `{}`, 0)
	f.put("visit", "gone", `{}`, 0)
	f.exec(`update entities set deleted = true where id = 'gone'`)

	snap := f.take()
	want := Snapshot{
		Integration: "care", Seq: 1, TakenAt: start, ManifestKey: "care/manifest-000000000001",
		Entities: 4, LastMutation: m,
		ManifestHash: snap.ManifestHash, BodyKey: "care/body-" + Hash(snap.BodyHash).String(), BodyHash: snap.BodyHash,
		BodySize: snap.BodySize, AuditPos: snap.AuditPos, AuditHash: snap.AuditHash, RetainUntil: snap.RetainUntil,
	}
	if diff := cmp.Diff(want, snap); diff != "" {
		t.Error(diff)
	}
	if stored, err := f.Get(t.Context(), "care", 1); err != nil || !cmp.Equal(stored, snap) {
		t.Errorf("Get: %v\n%s", err, cmp.Diff(snap, stored))
	}
	w, err := f.World(t.Context(), snap)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for e := range w.All() {
		order = append(order, e.Type+" "+e.ID)
	}
	if diff := cmp.Diff([]string{"Visit z", "visit V-\"1\"\n", "visit V-10", "visit V-2"}, order); diff != "" {
		t.Error(diff)
	}
	e, ok := w.Lookup("visit", "V-2")
	wantE := Entity{ID: "V-2", LastMutation: m, State: []byte(`{"nurse":"Bé","seconds":9007199254740993}`), Subject: "client V-2", Type: "visit", Version: 1}
	if diff := cmp.Diff(wantE, e); !ok || diff != "" {
		t.Error(ok, diff)
	}
	if _, ok := w.Lookup("visit", "gone"); ok {
		t.Error("a deleted entity is in the world")
	}
	f.sound()
}

func TestUnknownIntegrationLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	if _, err := f.Take(t.Context(), gate.Job("snapshot"), "nowhere"); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("Take: %v", err)
	}
	if _, err := f.VerifyChain(t.Context(), gate.Job("verify"), "nowhere", nil); !errors.Is(err, gate.ErrNotFound) {
		t.Errorf("VerifyChain: %v", err)
	}
	for o, err := range f.store.Versions(t.Context(), "") {
		t.Errorf("the store has %s, %v", o.Key, err)
	}
}

// The head's manifest is lost: the chain goes on from the recorded head, also
// where the world has not changed, and verification keeps naming the loss.
func TestLostHeadDoesNotStopSnapshots(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{}`, 0)
	f.take()
	f.exec(`update snapshots set manifest_version = '00000000000000000000000000'`)
	if snap := f.take(); snap.Seq != 2 {
		t.Errorf("took %d, want 2", snap.Seq)
	}
}

func TestLinesAreCanonical(t *testing.T) {
	for _, e := range []Entity{
		{Type: "visit", ID: "V-1", Subject: "C-1", State: []byte(`{"a":1}`), Version: 3, LastMutation: math.MaxInt64},
		{Type: "a\"b", ID: "\\\n\x01\u2028é", Subject: "", State: []byte(`{}`)},
	} {
		line, err := appendLine(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := gate.Canonical(line, 0)
		if err != nil || string(canonical)+"\n" != string(line) {
			t.Errorf("%q is not canonical: %v", line, err)
		}
	}
}

func TestUnchangedWorldSharesItsBody(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{"n":1}`, 0)
	first := f.take()
	second := f.take()
	if first.BodyKey != second.BodyKey || second.PrevHash != first.ManifestHash {
		t.Errorf("first %+v, second %+v", first, second)
	}
	f.put("visit", "V-1", `{"n":2}`, 0)
	third := f.take()
	if third.BodyKey == first.BodyKey {
		t.Error("a changed world has the old body")
	}
	f.exec(`update entities set state = '{"n":1}', version = 1`)
	if fourth := f.take(); fourth.BodyKey != first.BodyKey {
		t.Error("a state that came back has another body")
	}
	f.sound()
}

func TestSharedBodyIsLockedForTheLastSnapshot(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{"n":1}`, 0)
	f.take()
	later := time.Now().Add(36 * time.Hour) // past the margin of a body
	f.cfg.RealNow = func() time.Time { return later }
	f.reload()
	snap := f.take()
	mode, until, err := f.store.Retention(t.Context(), snap.BodyKey, "")
	if err != nil || mode != compliance || until.Before(later.Add(f.retention)) {
		t.Errorf("body locked %s until %v, %v; want until %v", mode, until, err, later.Add(f.retention))
	}
	if snap.RetainUntil.Before(later.Add(f.retention)) {
		t.Errorf("manifest locked until %v", snap.RetainUntil)
	}
	f.sound()
}

func TestLockedVersionCannotBeDeleted(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{}`, 0)
	snap := f.take()
	row, err := f.row(t.Context(), "care", 1)
	if err != nil {
		t.Fatal(err)
	}
	store, ok := f.store.(*objectstore.Store)
	if !ok {
		t.Fatalf("store is a %T", f.store)
	}
	for key, version := range map[string]string{snap.ManifestKey: row.manifestVersion, snap.BodyKey: row.bodyVersion} {
		if err := store.DeleteVersion(t.Context(), key, version); err == nil {
			t.Errorf("the store deleted %s", key)
		}
	}
}

func TestConcurrentTakesDoNotFork(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{}`, 0)
	other, err := New(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	const callers, rounds = 4, 3
	var mu sync.Mutex
	var seqs []int64
	var wg sync.WaitGroup
	for n := range callers {
		svc := []*Service{f.Service, other}[n%2]
		wg.Go(func() {
			for range rounds {
				f.exec(`update entities set version = version + 1`)
				snap, err := svc.Take(context.Background(), gate.Job("snapshot"), "care")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seqs = append(seqs, snap.Seq)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(seqs)
	var want []int64
	for n := range int64(callers * rounds) {
		want = append(want, n+1)
	}
	if diff := cmp.Diff(want, seqs); diff != "" {
		t.Errorf("sequence numbers given: %s", diff)
	}
	f.sound()
}

func TestAdoptsAWholeChainIntoAnEmptyTable(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	for n := range 3 {
		f.put("visit", "V-1", fmt.Sprintf(`{"n":%d}`, n), 0)
		f.take()
	}
	before, err := f.List(t.Context(), "care", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.exec(`delete from snapshots`)
	f.exec(`alter table audit_records disable trigger all`)
	f.exec(`alter table audit_links disable trigger all`)
	f.exec(`delete from audit_links`)
	f.exec(`delete from audit_records where action = 'snapshot.taken'`)
	if snap := f.take(); snap.Seq != 4 {
		t.Errorf("took %d, want 4", snap.Seq)
	}
	after, err := f.List(t.Context(), "care", 4, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkTakeUnchanged(b *testing.B) {
	f := newSealing(b)
	f.exec(`insert into entities (integration, type, id, version, state, subject, updated_at)
		select 'care', 'visit', 'V-' || n, 1, convert_to('{"client":"C-' || n || '","day":"2025-10-27","minutes":45,"nurse":"N-' || n % 24 || '","note":"' || md5(n::text) || '"}', 'UTF8'), 'C-' || n, $1
		from generate_series(1, 1500) n`, start)
	f.take()
	for b.Loop() {
		f.take()
	}
}
