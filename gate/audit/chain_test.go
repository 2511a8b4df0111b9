package audit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate/audit"
	"sluis/migrations/testdb"
)

func begin(t *testing.T, pool *pgxpool.Pool, entries ...audit.Entry) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // else a failed test would wait for it
	if err := audit.Append(t.Context(), tx, entries...); err != nil {
		t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// many appends n records in one statement of its own.
func many(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	entries := make([]audit.Entry, n)
	for i := range entries {
		entries[i] = entry(fmt.Sprintf("E-%d", i))
	}
	appendAll(t, pool, entries...)
}

// checkChain verifies from the start and that every record is linked, in order.
func checkChain(t *testing.T, pool *pgxpool.Pool, want audit.Head) {
	t.Helper()
	got, err := audit.Verify(t.Context(), pool, audit.Head{})
	if err != nil || got != want {
		t.Fatalf("Verify: %v, %v, want %v", got, err, want)
	}
	if current, err := audit.CurrentHead(t.Context(), pool); err != nil || current != want {
		t.Errorf("CurrentHead: %v, %v, want %v", current, err, want)
	}
}

func TestAnEmptyChain(t *testing.T) {
	pool := testdb.Pool(t)
	if head := link(t, pool); head != (audit.Head{}) {
		t.Errorf("head %v", head)
	}
	checkChain(t, pool, audit.Head{})
}

func TestLinkIsGaplessAndContinues(t *testing.T) {
	pool := testdb.Pool(t)
	many(t, pool, 4_500) // more than two batches
	first := link(t, pool)
	if first.Pos != 4_500 {
		t.Fatalf("head at %d", first.Pos)
	}
	if again := link(t, pool); again != first {
		t.Errorf("linking nothing moved the head: %v, %v", first, again)
	}
	appendAll(t, pool, entry("Q-1"))
	second := link(t, pool)
	if second.Pos != 4_501 {
		t.Fatalf("head at %d", second.Pos)
	}
	checkChain(t, pool, second)
	if got, err := audit.Verify(t.Context(), pool, first); err != nil || got != second {
		t.Errorf("Verify from a kept head: %v, %v", got, err)
	}
	newest := list(t, pool, audit.Filter{Limit: 1})[0]
	if newest.Pos != second.Pos || newest.Hash != second.Hash {
		t.Errorf("the newest record is at %d", newest.Pos)
	}
}

func TestARecordThatCommitsLateIsLinkedLater(t *testing.T) {
	pool := testdb.Pool(t)
	late := begin(t, pool, entry("late"))
	appendAll(t, pool, entry("early"))
	if head := link(t, pool); head.Pos != 1 {
		t.Fatalf("head at %d, want the committed record alone", head.Pos)
	}
	if pos := list(t, pool, audit.Filter{Object: "early"})[0].Pos; pos != 1 {
		t.Errorf("early is at %d", pos)
	}
	commit(t, late)
	if pos := list(t, pool, audit.Filter{Object: "late"})[0].Pos; pos != 0 {
		t.Errorf("late is at %d before it was linked", pos)
	}
	head := link(t, pool)
	if pos := list(t, pool, audit.Filter{Object: "late"})[0].Pos; pos != 2 {
		t.Errorf("late is at %d", pos)
	}
	checkChain(t, pool, head)
}

// The bound that makes the anti-join complete: linking never runs further
// ahead of an open transaction than it looks back.
func TestLinkWaitsForATransactionAWindowBehind(t *testing.T) {
	pool := testdb.Pool(t)
	late := begin(t, pool, entry("late"))
	many(t, pool, 25_000)
	held := link(t, pool)
	if held.Pos < 15_000 || held.Pos > 20_000 {
		t.Fatalf("head at %d while a transaction is open", held.Pos)
	}
	many(t, pool, 1_000)
	if again := link(t, pool); again != held {
		t.Errorf("head went on from %d to %d", held.Pos, again.Pos)
	}
	commit(t, late)
	head := link(t, pool)
	if head.Pos != 26_001 {
		t.Errorf("head at %d, want every record", head.Pos)
	}
	if pos := list(t, pool, audit.Filter{Object: "late"})[0].Pos; pos != held.Pos+1 {
		t.Errorf("late is at %d, want next after %d", pos, held.Pos)
	}
	checkChain(t, pool, head)
}

func TestARolledBackTransactionHoldsNothingUp(t *testing.T) {
	pool := testdb.Pool(t)
	gone := begin(t, pool, entry("gone"))
	many(t, pool, 22_000)
	if err := gone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if head := link(t, pool); head.Pos != 22_000 {
		t.Errorf("head at %d", head.Pos)
	}
}

func TestAppendersAndLinkersAtTheSameTime(t *testing.T) {
	pool := testdb.Pool(t)
	const writers, each = 6, 40
	var writing, linking sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		linking.Go(func() {
			for {
				if _, err := audit.Link(t.Context(), pool); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					if err := audit.Append(t.Context(), tx, entry(fmt.Sprintf("%d-%d", w, i))); err != nil {
						return err
					}
					return audit.Append(t.Context(), tx, entry("second"))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	close(done)
	linking.Wait()
	head := link(t, pool)
	if head.Pos != 2*writers*each {
		t.Errorf("head at %d, want %d", head.Pos, 2*writers*each)
	}
	checkChain(t, pool, head)
}

// TestVerifyFindsTampering does what only the owner of the tables can do.
func TestVerifyFindsTampering(t *testing.T) {
	const unlock = "set session_replication_role = replica; "
	for _, test := range []struct {
		name, sql string
		pos       int64
	}{
		{"changed actor", "update audit_records set actor = 'x' where id = 5", 5},
		{"changed detail", "update audit_records set detail = '{}' where id = 5", 5},
		{"changed time", "update audit_records set at = at + interval '1 microsecond' where id = 5", 5},
		{"text moved between columns", "update audit_records set action = action || left(object, 1), object = substr(object, 2) where id = 5", 5},
		{"changed hash", "update audit_links set hash = sha256('x') where pos = 5", 5},
		{"removed record", "delete from audit_records where id = 5", 5},
		{"removed last record", "delete from audit_records where id = 30", 30},
		{"removed link", "delete from audit_links where pos = 5", 5},
		{"cut tail", "delete from audit_links where pos >= 20", 20},
		{"other order", "update audit_links set record_id = case record_id when 5 then 6 else 5 end where record_id in (5, 6)", 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			pool := testdb.Pool(t)
			many(t, pool, 20)
			kept := link(t, pool)
			many(t, pool, 10)
			link(t, pool)
			tamper(t, pool, unlock+"alter table audit_links drop constraint audit_links_record_id_key; "+test.sql)
			_, err := audit.Verify(t.Context(), pool, audit.Head{})
			if test.name == "cut tail" {
				if err != nil {
					t.Fatalf("without a later head: %v", err)
				}
				_, err = audit.Verify(t.Context(), pool, kept)
			}
			var broken *audit.BrokenError
			if !errors.As(err, &broken) || broken.Pos != test.pos {
				t.Errorf("error %v, want broken at %d", err, test.pos)
			}
		})
	}
}

func TestVerifyRefusesAnotherChainsHead(t *testing.T) {
	pool := testdb.Pool(t)
	many(t, pool, 3)
	head := link(t, pool)
	head.Hash[0]++
	var broken *audit.BrokenError
	if _, err := audit.Verify(t.Context(), pool, head); !errors.As(err, &broken) || broken.Pos != 3 {
		t.Errorf("error %v", err)
	}
}

func TestVerifyFindsARecordSlippedIn(t *testing.T) {
	pool := testdb.Pool(t)
	gone := begin(t, pool, entry("gone"))
	if err := gone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	many(t, pool, 22_000)
	link(t, pool)
	tamper(t, pool, `insert into audit_records (id, at, actor_kind, actor, action, detail)
		overriding system value values (1, '2025-10-26Z', 'person', 'x', 'x', '{}')`)
	link(t, pool)
	var broken *audit.BrokenError
	if _, err := audit.Verify(t.Context(), pool, audit.Head{}); !errors.As(err, &broken) || broken.Pos != 0 {
		t.Errorf("error %v", err)
	}
}

func tamper(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

func TestTheTablesRefuseChanges(t *testing.T) {
	pool := testdb.Pool(t)
	many(t, pool, 1)
	link(t, pool)
	for _, sql := range []string{
		"update audit_records set actor = 'x'", "delete from audit_records", "truncate audit_records cascade",
		"update audit_links set pos = 2", "delete from audit_links", "truncate audit_links",
	} {
		if _, err := pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was done", sql)
		}
	}
}
