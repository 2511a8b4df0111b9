package snapshots

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/snapshots/objectstore"
)

func TestVerifyChainReportsAndRecords(t *testing.T) {
	t.Parallel()
	f := chainOf(t, 3)
	report, err := f.VerifyChain(t.Context(), gate.Person("anna"), "care", nil)
	if err != nil {
		t.Fatal(err)
	}
	head, err := f.head(t.Context(), "care")
	if err != nil {
		t.Fatal(err)
	}
	want := Report{Integration: "care", Chain: FindingGood, Signatures: FindingGood, Bodies: FindingGood, Locks: FindingGood,
		Tail: FindingGood, Checked: 3, Head: Head{3, head.ManifestHash}, Problems: []Problem{}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
	if !head.VerifiedAt.Equal(f.clock.Now()) || head.VerifyError != "" {
		t.Errorf("head verified at %v, %q", head.VerifiedAt, head.VerifyError)
	}
	var actor string
	if err := f.db.QueryRow(t.Context(), `select actor from audit_records where action = 'snapshot.verified' and object = 'S-care-3'`).Scan(&actor); err != nil || actor != "anna" {
		t.Errorf("audit: %q, %v", actor, err)
	}

	// A row that claims another head: the chain in the store is not the recorded one.
	f.exec(`update snapshots set manifest_hash = sha256('x') where seq = 3`)
	report, err = f.VerifyChain(t.Context(), gate.Job("verify"), "care", nil)
	if err != nil || report.Tail != FindingBad || report.Chain != FindingGood {
		t.Errorf("%+v, %v", report, err)
	}
	snap, err := f.Get(t.Context(), "care", 3)
	if err != nil || snap.VerifyError == "" {
		t.Errorf("finding not stored: %+v, %v", snap, err)
	}
	sig, err := f.Signal(t.Context(), "care")
	if err != nil || sig.Level != gate.LevelAct || sig.Why != "broken" || sig.WhyArgs["Seq"] != int64(3) {
		t.Errorf("%+v, %v", sig, err)
	}
	var broken *BrokenError
	if _, err := f.World(t.Context(), snap); !errors.As(err, &broken) {
		t.Errorf("World of a snapshot whose manifest differs: %v", err)
	}
}

// deletableStore can do what a rogue operator could.
type deletableStore interface {
	DeleteVersion(ctx context.Context, key, versionID string) error
}

// A delete marker over a locked object hides it; the sealed version is still
// read, and the finding names the attempt.
func TestHiddenObjectIsStillRead(t *testing.T) {
	t.Parallel()
	f := chainOf(t, 2)
	snap, err := f.Get(t.Context(), "care", 1)
	if err != nil {
		t.Fatal(err)
	}
	store, ok := f.store.(deletableStore)
	if !ok {
		t.Fatalf("store is a %T", f.store)
	}
	for _, key := range []string{snap.BodyKey, snap.ManifestKey} {
		if err := store.DeleteVersion(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := f.store.Get(t.Context(), key, ""); !errors.Is(err, objectstore.ErrNotFound) {
			t.Fatalf("%s is not hidden: %v", key, err)
		}
	}
	if _, err := f.World(t.Context(), snap); err != nil {
		t.Error(err)
	}
	report, err := f.VerifyChain(t.Context(), gate.Job("verify"), "care", nil)
	if err != nil || report.Chain != FindingGood || report.Bodies != FindingGood || report.Locks != FindingBad {
		t.Errorf("%+v, %v", report, err)
	}
	if diff := cmp.Diff([]string{"lock 1"}, problems(report)); diff != "" {
		t.Error(diff)
	}
	f.take() // goes on
}

// A manifest that somebody else put behind the head is not adopted, no
// snapshot is taken on top, and verification names it.
func TestForeignManifestIsRefused(t *testing.T) {
	t.Parallel()
	f := chainOf(t, 2)
	head, err := f.head(t.Context(), "care")
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := GenerateKeys("foreign")
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.sealedManifest(t.Context(), head)
	if err != nil {
		t.Fatal(err)
	}
	m.Seq, m.Prev = 3, head.ManifestHash
	raw, err := m.seal(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Put(t.Context(), manifestKey("care", 3), raw, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, err = f.Take(t.Context(), gate.Job("snapshot"), "care")
	var broken *BrokenError
	if !errors.As(err, &broken) || broken.Kind != ProblemSignature || broken.Seq != 3 {
		t.Errorf("Take: %v", err)
	}
	report, err := f.VerifyChain(t.Context(), gate.Job("verify"), "care", nil)
	if err != nil || report.Signatures != FindingBad || report.Tail != FindingGood {
		t.Errorf("%+v, %v", report, err)
	}
	sig, err := f.Signal(t.Context(), "care")
	if err != nil || sig.Why != "broken" {
		t.Errorf("%+v, %v", sig, err)
	}
}

// Also what our own key signed is adopted only where it follows the head.
func TestNextManifestHasToFollow(t *testing.T) {
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{keys: keys}
	head := snapshotRow{Snapshot: Snapshot{Integration: "care", Seq: 4, ManifestHash: hashOf([]byte("head")), LastMutation: 30}}
	good := testManifest()
	good.Seq, good.Prev, good.Body.Key = 5, head.ManifestHash, bodyKey("care", good.Body.ContentHash)
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   ProblemKind
	}{
		"follows":             {func(*Manifest) {}, ""},
		"another head":        {func(m *Manifest) { m.Prev = hashOf([]byte("fork")) }, ProblemChain},
		"another place":       {func(m *Manifest) { m.Seq = 6 }, ProblemChain},
		"another integration": {func(m *Manifest) { m.Integration = "terminal" }, ProblemChain},
		"an older position":   {func(m *Manifest) { m.Mutations.Last = 29 }, ProblemChain},
		"another body's key":  {func(m *Manifest) { m.Body.Key = "care/body-x" }, ProblemChain},
	} {
		m := good
		c.change(&m)
		raw, err := m.seal(keys)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.nextManifest(head, raw)
		var broken *BrokenError
		if errors.As(err, &broken); (c.want == "") != (err == nil) || (err != nil && broken.Kind != c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
