package snapshots

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// chainOf takes n snapshots, of which 2 and 3 share a body.
func chainOf(t testing.TB, n int) *sealing {
	t.Helper()
	f := newSealing(t)
	for i := range n {
		if i != 2 {
			f.put("visit", "V-1", fmt.Sprintf(`{"n":%d}`, i), 0)
		}
		f.put("visit", "V-2", `{"kept":true}`, 0)
		f.exec(`update entities set version = 1`)
		f.clock.Advance(15 * time.Minute)
		f.take()
	}
	return f
}

// copyTo copies the bucket into a folder, as an auditor would.
func (f *sealing) copyTo(dir string) {
	f.t.Helper()
	r := BucketReader(f.store)
	keys, err := r.Keys(context.Background(), "care/")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, key := range keys {
		raw, err := r.Read(context.Background(), key)
		if err != nil {
			f.t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, key)), 0o755); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, key), raw, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

// problems lists a report's problems as "kind seq", each once.
func problems(r Report) []string {
	seen := map[string]bool{}
	for _, p := range r.Problems {
		seen[fmt.Sprintf("%s %d", p.Kind, p.Seq)] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestVerifyOfflineTellsEachFault(t *testing.T) {
	t.Parallel()
	f := chainOf(t, 5)
	origin := t.TempDir()
	f.copyTo(origin)
	head, err := f.head(t.Context(), "care")
	if err != nil {
		t.Fatal(err)
	}
	snaps := map[int64]Snapshot{}
	list, err := f.List(t.Context(), "care", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		snaps[s.Seq] = s
	}
	if snaps[2].BodyKey != snaps[3].BodyKey {
		t.Fatal("2 and 3 were to share a body")
	}
	otherKeys, _, err := GenerateKeys("other")
	if err != nil {
		t.Fatal(err)
	}
	flip := func(dir, key string, at int) {
		raw := read(t, dir, key)
		raw[(at+len(raw))%len(raw)] ^= 1
		write(t, dir, key, raw)
	}
	swap := func(dir, a, b string) {
		x, y := read(t, dir, a), read(t, dir, b)
		write(t, dir, a, y)
		write(t, dir, b, x)
	}
	for name, c := range map[string]struct {
		harm func(dir string)
		key  string
		want []string
	}{
		"nothing":             {harm: func(string) {}},
		"byte of a manifest":  {harm: func(d string) { flip(d, snaps[3].ManifestKey, 40) }, want: []string{"chain 4", "signature 3"}},
		"byte of a signature": {harm: func(d string) { flip(d, snaps[2].ManifestKey, -9) }, want: []string{"chain 3", "signature 2"}},
		"byte of the head":    {harm: func(d string) { flip(d, snaps[5].ManifestKey, 40) }, want: []string{"signature 5", "tail 5"}},
		"byte of a body":      {harm: func(d string) { flip(d, snaps[2].BodyKey, 20) }, want: []string{"body 2", "body 3"}},
		"last byte of a body": {harm: func(d string) { flip(d, snaps[5].BodyKey, -1) }, want: []string{"body 5"}},
		"missing body":        {harm: func(d string) { remove(t, d, snaps[4].BodyKey) }, want: []string{"body 4"}},
		"empty body":          {harm: func(d string) { write(t, d, snaps[4].BodyKey, nil) }, want: []string{"body 4"}},
		"missing link":        {harm: func(d string) { remove(t, d, snaps[2].ManifestKey) }, want: []string{"chain 2"}},
		"first link missing":  {harm: func(d string) { remove(t, d, snaps[1].ManifestKey) }, want: []string{"chain 1"}},
		"cut tail": {harm: func(d string) { remove(t, d, snaps[5].ManifestKey); remove(t, d, snaps[4].ManifestKey) },
			want: []string{"tail 4", "tail 5"}},
		"swapped manifests": {harm: func(d string) { swap(d, snaps[3].ManifestKey, snaps[4].ManifestKey) },
			want: []string{"chain 3", "chain 4", "chain 5"}},
		"swapped bodies": {harm: func(d string) { swap(d, snaps[1].BodyKey, snaps[4].BodyKey) }, want: []string{"body 1", "body 4"}},
		"another key": {harm: func(string) {}, key: otherKeys.VerifierKey(),
			want: []string{"signature 1", "signature 2", "signature 3", "signature 4", "signature 5"}},
		"everything gone": {harm: func(d string) {
			if err := os.RemoveAll(d); err != nil {
				t.Fatal(err)
			}
		}, want: []string{"tail 1", "tail 2", "tail 3", "tail 4", "tail 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(origin)); err != nil {
				t.Fatal(err)
			}
			c.harm(dir)
			key := c.key
			if key == "" {
				key = f.keys.VerifierKey()
			}
			report, err := VerifyOffline(t.Context(), FolderReader(os.DirFS(dir)), key, VerifyOptions{
				Integration: "care", Head: &Head{Seq: head.Seq, Hash: head.ManifestHash}, Now: time.Now(),
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, problems(report), cmp.Comparer(func(a, b []string) bool { return slices.Equal(a, b) })); diff != "" {
				t.Errorf("%s\n%+v", diff, report.Problems)
			}
			if report.Good() != (len(c.want) == 0) || report.Locks != FindingUnchecked {
				t.Errorf("good %v, locks %v", report.Good(), report.Locks)
			}
		})
	}
}

func read(t testing.TB, dir, key string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, key))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func write(t testing.TB, dir, key string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, key), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, dir, key string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, key)); err != nil {
		t.Fatal(err)
	}
}

// forge builds a chain in memory that the key's holder could have signed.
func forge(t testing.TB, k Keys, states ...string) (fstest.MapFS, Head) {
	t.Helper()
	files := fstest.MapFS{}
	var head Head
	for n, state := range states {
		w, err := newBodyWriter()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.add(Entity{Type: "visit", ID: "V-1", State: []byte(state)}); err != nil {
			t.Fatal(err)
		}
		body, err := w.finish()
		if err != nil {
			t.Fatal(err)
		}
		m := Manifest{Body: body.describe("care"), Entities: 1, Format: manifestFormat, Integration: "care",
			Prev: head.Hash, Seq: int64(n + 1), TakenAt: start, RetainUntil: start}
		raw, err := m.seal(k)
		if err != nil {
			t.Fatal(err)
		}
		files[manifestKey("care", m.Seq)] = &fstest.MapFile{Data: raw}
		files[m.Body.Key] = &fstest.MapFile{Data: body.stored}
		head = Head{Seq: m.Seq, Hash: hashOf(raw)}
	}
	return files, head
}

// Who holds the key can sign another chain; only the recorded head shows it.
func TestRecordedHeadShowsAnotherChain(t *testing.T) {
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	_, head := forge(t, keys, `{"n":1}`, `{"n":2}`)
	other, _ := forge(t, keys, `{"n":1}`, `{"n":3}`)
	for _, c := range []struct {
		head *Head
		want Finding
	}{{nil, FindingUnchecked}, {&head, FindingBad}} {
		r, err := VerifyOffline(t.Context(), FolderReader(other), keys.VerifierKey(), VerifyOptions{Integration: "care", Head: c.head})
		if err != nil || r.Tail != c.want || r.Chain != FindingGood || r.Signatures != FindingGood || r.Bodies != FindingGood || r.Checked != 2 {
			t.Errorf("with head %v: %+v, %v", c.head, r, err)
		}
	}
}

// countingReader counts reads of each key.
type countingReader struct {
	Reader
	reads map[string]int
}

func (r *countingReader) Read(ctx context.Context, key string) ([]byte, error) {
	r.reads[key]++
	return r.Reader.Read(ctx, key)
}

func TestSharedBodyIsReadOnce(t *testing.T) {
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := forge(t, keys, `{"n":1}`, `{"n":1}`, `{"n":1}`)
	r := &countingReader{FolderReader(files), map[string]int{}}
	var steps []int
	report, err := VerifyOffline(t.Context(), r, keys.VerifierKey(), VerifyOptions{
		Integration: "care", Progress: func(done, total int) { steps = append(steps, done, total) }})
	if err != nil || !report.Good() {
		t.Fatalf("%+v, %v", report, err)
	}
	for key, n := range r.reads {
		if n != 1 {
			t.Errorf("%s was read %d times", key, n)
		}
	}
	if len(r.reads) != 4 {
		t.Errorf("%d objects read, want 3 manifests and one body", len(r.reads))
	}
	if diff := cmp.Diff([]int{1, 3, 2, 3, 3, 3}, steps); diff != "" {
		t.Error(diff)
	}
	if names, err := ChainsIn(t.Context(), r); err != nil || !slices.Equal(names, []string{"care"}) {
		t.Errorf("chains %v, %v", names, err)
	}
}

func TestShortLockIsFound(t *testing.T) {
	t.Parallel()
	f := chainOf(t, 1)
	r := BucketReader(f.store)
	now := time.Now()
	for _, c := range []struct {
		name string
		lock Lock
		now  time.Time
		want Finding
	}{
		{"as asked", Lock{Mode: compliance, Until: now.Add(2 * time.Hour)}, now, FindingGood},
		{"too short", Lock{Mode: compliance, Until: now.Add(time.Minute)}, now, FindingBad},
		{"liftable", Lock{Mode: "GOVERNANCE", Until: now.Add(2 * time.Hour)}, now, FindingBad},
		{"none", Lock{}, now, FindingBad},
		{"none, and its time is over", Lock{}, now.Add(2 * time.Hour), FindingGood},
		{"hidden", Lock{Mode: compliance, Until: now.Add(2 * time.Hour), Covered: true}, now, FindingBad},
		{"no clock", Lock{}, time.Time{}, FindingUnchecked},
	} {
		report, err := VerifyOffline(t.Context(), fixedLock{r, c.lock}, f.keys.VerifierKey(), VerifyOptions{Integration: "care", Now: c.now})
		if err != nil || report.Locks != c.want || report.Bodies != FindingGood {
			t.Errorf("%s: %+v, %v", c.name, report, err)
		}
	}
}

type fixedLock struct {
	Reader
	lock Lock
}

func (r fixedLock) Lock(context.Context, string) (Lock, error) { return r.lock, nil }

// TestListingTwiceHidesNothing: a reader that has listed the whole bucket, to
// find its chains, must not take the same keys for later versions.
func TestListingTwiceHidesNothing(t *testing.T) {
	f := chainOf(t, 2)
	r := BucketReader(f.store)
	chains, err := ChainsIn(t.Context(), r)
	if err != nil || len(chains) != 1 {
		t.Fatalf("chains %v, %v", chains, err)
	}
	report, err := VerifyOffline(t.Context(), r, f.keys.VerifierKey(), VerifyOptions{Integration: chains[0], Now: time.Now()})
	if err != nil || !report.Good() || report.Locks != FindingGood {
		t.Errorf("report %+v, %v", report, err)
	}
}

func TestNoChainIsNoGoodChain(t *testing.T) {
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = VerifyOffline(t.Context(), FolderReader(fstest.MapFS{}), keys.VerifierKey(), VerifyOptions{Integration: "care"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := VerifyOffline(t.Context(), FolderReader(fstest.MapFS{}), keys.VerifierKey(), VerifyOptions{}); err == nil {
		t.Error("no integration named, and no error")
	}
	if _, err := VerifyOffline(t.Context(), FolderReader(fstest.MapFS{}), "no key", VerifyOptions{Integration: "care"}); err == nil {
		t.Error("no verifier key, and no error")
	}
}

func TestFolderReaderStaysInside(t *testing.T) {
	r := FolderReader(fstest.MapFS{"care/manifest-000000000001": {Data: []byte("x")}, "carex/manifest-000000000001": {Data: []byte("y")}})
	keys, err := r.Keys(t.Context(), "care/manifest-")
	if err != nil || !slices.Equal(keys, []string{"care/manifest-000000000001"}) {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := r.Read(t.Context(), "../secret"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read outside: %v", err)
	}
}

func TestReadLinesRefusesACutLine(t *testing.T) {
	w, err := newBodyWriter()
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), 200_000) // longer than the reading buffer
	if _, err := w.zip.Write(append(append(append([]byte{}, long...), "\nshort\n"...), "cut"...)); err != nil {
		t.Fatal(err)
	}
	body, err := w.finish()
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	_, _, err = readLines(body.stored, func(line []byte) error { sizes = append(sizes, len(line)); return nil })
	if err == nil || !slices.Equal(sizes, []int{200_000, 5}) {
		t.Errorf("lines of %v bytes, %v", sizes, err)
	}
}
