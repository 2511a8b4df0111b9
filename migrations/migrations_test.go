package migrations

import (
	"context"
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"sluis/migrations/pgserver"
)

// emptyPool is a pool on an empty database of a cluster of its own: package
// testdb imports this one.
func emptyPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	if _, err := pgserver.BinDir(); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "sluis-migrations-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	server, err := pgserver.Start(t.Context(), pgserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	if err := server.EnsureDatabase(t.Context(), "sluis"); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), server.DSN("sluis"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func state(t *testing.T, pool *pgxpool.Pool, fsys fstest.MapFS) (version int64, left int) {
	t.Helper()
	version, err := Version(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	left, err = pending(t.Context(), pool, fsys)
	if err != nil {
		t.Fatal(err)
	}
	return version, left
}

func file(sql string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql)}
}

func TestUpInSteps(t *testing.T) {
	pool := emptyPool(t)
	fsys := fstest.MapFS{"00001_a.sql": file("CREATE TABLE a (v int);"), "00002_b.sql": file("CREATE TABLE b (v int);")}
	version, left := state(t, pool, fsys)
	if version != 0 || left < 3 { // River's are several
		t.Errorf("empty database: version %d, pending %d", version, left)
	}
	var exists bool
	if err := pool.QueryRow(t.Context(), "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&exists); err != nil || exists {
		t.Errorf("asking for the version made its table: %v, %v", exists, err)
	}
	if err := up(t.Context(), pool, fsys); err != nil {
		t.Fatal(err)
	}
	if version, left = state(t, pool, fsys); version != 2 || left != 0 {
		t.Errorf("after up: version %d, pending %d", version, left)
	}

	fsys["00003_c.sql"] = file("CREATE TABLE c (v int); SELECT 1/0;")
	if version, left = state(t, pool, fsys); version != 2 || left != 1 {
		t.Errorf("with a new file: version %d, pending %d", version, left)
	}
	if err := up(t.Context(), pool, fsys); err == nil {
		t.Error("a failing file reports no error")
	}
	if version, left = state(t, pool, fsys); version != 2 || left != 1 {
		t.Errorf("after a failed file: version %d, pending %d", version, left)
	}
	if err := pool.QueryRow(t.Context(), "SELECT to_regclass('c') IS NOT NULL").Scan(&exists); err != nil || exists {
		t.Errorf("failed file leaves its table: %v, %v", exists, err)
	}
}

func TestReplicasMigrateAtOnce(t *testing.T) {
	pool := emptyPool(t)
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			config := pool.Config()
			config.MaxConns = 1 // the lock needs none of the pool's
			own, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				return err
			}
			defer own.Close()
			return Up(t.Context(), own)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if left, err := Pending(t.Context(), pool); err != nil || left != 0 {
		t.Errorf("pending %d, %v", left, err)
	}
}

func TestEmbeddedFilesAreNumberedWithoutGaps(t *testing.T) {
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for i, e := range entries {
		got = append(got, e.Name()[:5])
		want = append(want, string([]byte{'0', '0', '0', byte('0' + (i+1)/10), byte('0' + (i+1)%10)}))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}
