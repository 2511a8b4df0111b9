package snapshots

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

func (f *sealing) position(snap Snapshot) Position {
	f.t.Helper()
	w, err := f.World(context.Background(), snap)
	if err != nil {
		f.t.Fatal(err)
	}
	return w.Manifest.Mutations
}

func TestPositionNamesWhatMaySettleLater(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	if p := f.position(f.take()); !cmp.Equal(p, Position{Open: []int64{}}) {
		t.Errorf("empty world at %+v", p)
	}
	done := f.reserve(gate.Committed)
	flying := f.reserve(gate.InFlight)
	f.reserve(gate.StRefused)
	unknown := f.reserve(gate.Unknown)
	manual := f.reserve(gate.Manual)
	undone := f.reserve(gate.RolledBack)
	f.reserve(gate.InFlight) // behind the position, so found after it anyway

	p := f.position(f.take())
	if diff := cmp.Diff(Position{Last: undone, Open: []int64{flying, unknown, manual}}, p); diff != "" {
		t.Error(diff)
	}
	for id, want := range map[int64]bool{done: true, flying: false, undone: true, undone + 1: false} {
		if p.Contains(id) != want {
			t.Errorf("Contains(%d) = %v", id, !want)
		}
	}
	f.settle(flying)
	p = f.position(f.take())
	if diff := cmp.Diff(Position{Last: undone, Open: []int64{unknown, manual}}, p); diff != "" {
		t.Error(diff)
	}
	f.sound()
}

// A number is taken before its transaction commits: the mutation is not
// visible to the snapshot, has a lower number than one that is inside, and
// settles afterwards.
func TestPositionNamesMutationsThatWereNotVisible(t *testing.T) {
	t.Parallel()
	f := newSealing(t)
	tx, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	late, err := insertReserved(tx, gate.InFlight)
	if err != nil {
		t.Fatal(err)
	}
	done := f.reserve(gate.Committed)

	var v view
	err = pgx.BeginTxFunc(t.Context(), f.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) (err error) {
		v, err = readView(t.Context(), tx, "care", 0)
		return err
	})
	if err != nil || v.last != done || len(v.writers) != 1 {
		t.Fatalf("view %+v, %v", v, err)
	}
	taken := make(chan Snapshot)
	go func() {
		snap, err := f.Take(context.Background(), gate.Job("snapshot"), "care")
		if err != nil {
			t.Error(err)
		}
		taken <- snap
	}()
	f.awaitPoll()
	select {
	case snap := <-taken:
		t.Fatalf("snapshot %d did not wait for the writer", snap.Seq)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := f.position(<-taken)
	if diff := cmp.Diff(Position{Last: done, Open: []int64{late}}, p); diff != "" {
		t.Error(diff)
	}
	f.sound()
}

// awaitPoll returns once some session has asked which writers still run.
func (f *sealing) awaitPoll() {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if time.Now().After(deadline) {
			f.t.Fatal("nobody waits for the writer")
		}
		var n int
		err := f.db.QueryRow(context.Background(), `
			select count(*) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid()
			  and query like '%virtualtransaction = any%'`).Scan(&n)
		if err != nil {
			f.t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
}
