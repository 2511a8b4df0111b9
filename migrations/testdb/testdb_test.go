package testdb

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluis/migrations"
)

func TestMain(m *testing.M) { Main(m) }

func TestPoolsAreApartAndMigrated(t *testing.T) {
	a, b := Pool(t), Pool(t)
	if n, err := migrations.Pending(t.Context(), a); err != nil || n != 0 {
		t.Errorf("pending = %d, %v", n, err)
	}
	if _, err := a.Exec(t.Context(), "CREATE TABLE only_here (v int)"); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := b.QueryRow(t.Context(), "SELECT to_regclass('only_here') IS NOT NULL").Scan(&there); err != nil || there {
		t.Errorf("table of one test seen by another: %v, %v", there, err)
	}
}

func TestDatabaseIsDroppedAtCleanup(t *testing.T) {
	var dsn string
	t.Run("inner", func(t *testing.T) {
		dsn = DSN(t)
		conn, err := pgx.Connect(t.Context(), dsn) // left open on purpose
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if conn, err := pgx.Connect(context.Background(), dsn); err == nil {
		_ = conn.Close(context.Background())
		t.Error("database outlives its test")
	}
}

func BenchmarkPool(b *testing.B) {
	Pool(b) // the start of the cluster is not the measure
	b.ResetTimer()
	for range b.N {
		Pool(b)
	}
}
