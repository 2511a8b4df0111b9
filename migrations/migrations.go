// Package migrations holds the database schema as numbered, forward-only SQL
// files and applies them, together with those of the job queue (River).
//
// schema.sql is a dump of what the files make, for reading and for review; it is
// checked for drift by `go run ./migrations/dump -check`.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed [0-9]*.sql
var files embed.FS

// lockID is the advisory lock of all migrations in one database ("sluismig").
const lockID int64 = 0x736c7569736d6967

// Up brings the database to the newest schema: River's migrations, then ours.
// Several processes may call it at once on one database; one works, the others
// wait and find nothing left to do. A failed file is rolled back, those before it stay.
func Up(ctx context.Context, pool *pgxpool.Pool) error { return up(ctx, pool, files) }

func up(ctx context.Context, pool *pgxpool.Pool, fsys fs.FS) error {
	unlock, err := lock(ctx, pool)
	if err != nil {
		return err
	}
	defer unlock()
	if err := upQueue(ctx, pool); err != nil {
		return err
	}
	return upTables(ctx, pool, fsys)
}

// Tables applies our own files alone, without River's and without the lock: what
// schema.sql is made from.
func Tables(ctx context.Context, pool *pgxpool.Pool) error { return upTables(ctx, pool, files) }

// lock takes the advisory lock on a connection beside the pool, so that a pool
// of one connection is enough and a lost process frees the lock.
func lock(ctx context.Context, pool *pgxpool.Pool) (unlock func(), err error) {
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	unlock = func() { _ = conn.Close(context.WithoutCancel(ctx)) } // ends the session and its lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockID); err != nil {
		unlock()
		return nil, fmt.Errorf("migrate: wait for another process's migration: %w", err)
	}
	return unlock, nil
}

func upQueue(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return fmt.Errorf("migrate job queue: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate job queue: %w", err)
	}
	return nil
}

func upTables(ctx context.Context, pool *pgxpool.Pool, fsys fs.FS) (err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, fsys)
	if err != nil {
		return fmt.Errorf("migrate tables: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate tables: %w", err)
	}
	return nil
}

// Version is the number of the newest file applied, 0 in an empty database. It changes nothing.
func Version(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	applied, err := appliedFiles(ctx, pool)
	if err != nil {
		return 0, err
	}
	var newest int64
	for version := range applied {
		newest = max(newest, version)
	}
	return newest, nil
}

// Pending is the number of migrations that Up would apply, River's included. It changes nothing.
func Pending(ctx context.Context, pool *pgxpool.Pool) (int, error) { return pending(ctx, pool, files) }

func pending(ctx context.Context, pool *pgxpool.Pool, fsys fs.FS) (int, error) {
	queue, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return 0, fmt.Errorf("pending migrations: %w", err)
	}
	existing, err := queue.ExistingVersions(ctx)
	if err != nil {
		return 0, fmt.Errorf("pending migrations: %w", err)
	}
	n := len(queue.AllVersions()) - len(existing)
	applied, err := appliedFiles(ctx, pool)
	if err != nil {
		return 0, err
	}
	names, err := fs.Glob(fsys, "[0-9]*.sql")
	if err != nil {
		return 0, fmt.Errorf("pending migrations: %w", err)
	}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("pending migrations: %w", err)
		}
		if !applied[version] {
			n++
		}
	}
	return max(n, 0), nil
}

// appliedFiles reads goose's table without creating it, as goose itself would.
func appliedFiles(ctx context.Context, pool *pgxpool.Pool) (map[int64]bool, error) {
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass('goose_db_version') IS NOT NULL").Scan(&exists); err != nil {
		return nil, fmt.Errorf("schema version: %w", err)
	}
	if !exists {
		return nil, nil
	}
	rows, err := pool.Query(ctx, "SELECT version_id FROM goose_db_version WHERE is_applied")
	if err != nil {
		return nil, fmt.Errorf("schema version: %w", err)
	}
	versions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("schema version: %w", err)
	}
	applied := make(map[int64]bool, len(versions))
	for _, v := range versions {
		applied[v] = true
	}
	return applied, nil
}
