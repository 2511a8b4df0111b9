package snapshots

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sluis/gate"
	"sluis/snapshots/objectstore"
)

var errLost = errors.New("connection lost")

// brittleStore fails one write, before or after it took effect.
type brittleStore struct {
	Store
	writes    int // so far
	fail      int // the write to fail, from 1; 0 for none
	persisted bool
	failed    string // which write failed
}

func (s *brittleStore) write(name string, do func() error) error {
	s.writes++
	if s.writes != s.fail {
		return do()
	}
	s.failed = name
	if s.persisted {
		if err := do(); err != nil {
			return err
		}
	}
	return errLost
}

func (s *brittleStore) Put(ctx context.Context, key string, body []byte, until time.Time) (r objectstore.Receipt, err error) {
	err = s.write("put "+key, func() (err error) { r, err = s.Store.Put(ctx, key, body, until); return err })
	return r, err
}

func (s *brittleStore) Extend(ctx context.Context, key, version string, until time.Time) error {
	return s.write("extend "+key, func() error { return s.Store.Extend(ctx, key, version, until) })
}

// Every write of a snapshot fails twice: not persisted, and persisted with its
// answer lost. After a restart the next Take goes on, and nothing is amiss.
func TestCrashAtEachStoreWrite(t *testing.T) {
	t.Parallel()
	for write := 1; ; write++ {
		done := false
		for _, persisted := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d persisted %v", write, persisted), func(t *testing.T) {
				done = crashAt(t, write, persisted)
			})
		}
		if done {
			if write-1 != 4 { // body, manifest; then the lock of a shared body, manifest
				t.Errorf("two snapshots have %d writes to the store, want 4", write-1)
			}
			return
		}
	}
}

// crashAt reports whether there is no such write.
func crashAt(t *testing.T, write int, persisted bool) (none bool) {
	f := newSealing(t)
	f.put("visit", "V-1", `{"n":1}`, 0)
	f.take()
	brittle := &brittleStore{Store: f.cfg.Store, persisted: persisted}
	later := time.Now().Add(36 * time.Hour)
	f.cfg.Store, f.cfg.RealNow = brittle, func() time.Time { return later }
	f.reload()

	f.exec(`update entities set state = '{"n":2}'`)
	brittle.fail = write
	_, err := f.Take(t.Context(), gate.Job("snapshot"), "care")
	if err == nil { // body and manifest went through: the lock of a shared body is next
		brittle.fail -= brittle.writes
		brittle.writes = 0
		f.exec(`update entities set state = '{"n":1}', version = 1`)
		later = later.Add(36 * time.Hour)
		brittle.fail++ // the put that finds the body taken
		_, err = f.Take(t.Context(), gate.Job("snapshot"), "care")
	}
	if err == nil {
		return true
	}
	if !errors.Is(err, errLost) {
		t.Fatalf("after %s: %v", brittle.failed, err)
	}
	f.sound()
	f.reload()
	before, err := f.head(t.Context(), "care")
	if err != nil {
		t.Fatal(err)
	}
	snap := f.take()
	want := before.Seq + 1
	if persisted && brittle.failed == "put "+manifestKey("care", want) {
		want++ // the lost snapshot exists and was recorded first
	}
	if snap.Seq != want {
		t.Errorf("after %s: took %d, want %d", brittle.failed, snap.Seq, want)
	}
	f.sound()
	report, err := f.VerifyChain(t.Context(), gate.Job("verify"), "care", nil)
	if err != nil || !report.Good() {
		t.Errorf("after %s: %+v, %v", brittle.failed, report, err)
	}
	return false
}

// The transaction that records a snapshot fails: refused, and committed with
// its answer lost.
func TestCrashAtRecording(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	f.put("visit", "V-1", `{"n":1}`, 0)
	f.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$`)
	f.exec(`create trigger refuse before insert on snapshots for each row execute function refuse()`)
	if _, err := f.Take(t.Context(), gate.Job("snapshot"), "care"); err == nil {
		t.Fatal("a snapshot was recorded through a trigger that refuses it")
	}
	f.exec(`drop trigger refuse on snapshots`)
	f.sound()
	f.reload()
	if snap := f.take(); snap.Seq != 2 {
		t.Errorf("took %d, want 2: the first is in the store", snap.Seq)
	}
	f.sound()

	// Committed, yet the writer does not know: it adopts once more.
	head, err := f.row(t.Context(), "care", 2)
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.row(t.Context(), "care", 1)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.adopt(t.Context(), gate.Job("snapshot"), before, head.manifestVersion); err != nil || again.ManifestHash != head.ManifestHash {
		t.Errorf("adopted again: %+v, %v", again, err)
	}
	f.sound()
}
