package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/migrations"
	"sluis/migrations/pgserver"
	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server"
)

// The name of the database and of the bucket in the embedded stores.
const (
	databaseName = "sluis"
	bucketName   = "sluis-snapshots"
)

// stopGrace bounds the stop of each embedded server.
const stopGrace = 2 * time.Second

// stack is what has to be closed, last opened first.
type stack []func(context.Context) error

func (s *stack) push(f func(context.Context) error) { *s = append(*s, f) }

// close closes everything, last opened first, also after an error.
func (s *stack) close(ctx context.Context) error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i](ctx))
	}
	*s = nil
	return errors.Join(errs...)
}

// openDatabase connects to the database at dsn, or, where that is empty, starts
// a private Postgres under the data directory; it brings the schema up to date.
func openDatabase(ctx context.Context, dir *dataDir, dsn string, durable bool, log *slog.Logger, open *stack) (*pgxpool.Pool, error) {
	if dsn == "" {
		pg, err := pgserver.Start(ctx, pgserver.Options{Dir: dir.file("postgres"), Durable: durable, Logger: log})
		if err != nil {
			return nil, err
		}
		open.push(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, stopGrace)
			defer cancel()
			return pg.Stop(ctx)
		})
		if err := pg.EnsureDatabase(ctx, databaseName); err != nil {
			return nil, err
		}
		dsn = pg.DSN(databaseName)
	}
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	open.push(func(context.Context) error { pool.Close(); return nil })
	if err := migrations.Up(ctx, pool); err != nil {
		return nil, err
	}
	return pool, nil
}

// openPool connects. Postgres may be gone for a while later on; at the start
// it has to answer.
func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("SLUIS_DATABASE_URL is not a Postgres address (postgres://user:password@host/database)")
	}
	cfg.MaxConns = max(cfg.MaxConns, 24)
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	cfg.ConnConfig.RuntimeParams["application_name"] = "sluis"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the database does not answer: %w", err)
	}
	return pool, nil
}

// bucketFromEnvironment is the bucket of SLUIS_S3_*.
func bucketFromEnvironment() objectstore.Config {
	return objectstore.Config{
		Endpoint: os.Getenv("SLUIS_S3_ENDPOINT"), Bucket: os.Getenv("SLUIS_S3_BUCKET"), Region: os.Getenv("SLUIS_S3_REGION"),
	}
}

// openObjects connects to a bucket, or, where none is named, starts the
// embedded store under the data directory.
func openObjects(ctx context.Context, dir *dataDir, cfg objectstore.Config, log *slog.Logger, open *stack) (*objectstore.Store, error) {
	if cfg.Bucket == "" {
		if cfg.Endpoint != "" {
			return nil, errors.New("SLUIS_S3_ENDPOINT is set, but SLUIS_S3_BUCKET is not: name the bucket")
		}
		server, err := s3server.Start(ctx, s3server.Options{Dir: dir.file("objects"), Logger: log})
		if err != nil {
			return nil, err
		}
		open.push(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, stopGrace)
			defer cancel()
			return server.Stop(ctx)
		})
		cfg = server.Config(bucketName)
	}
	store, err := objectstore.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := store.EnsureBucket(ctx); err != nil {
		return nil, err
	}
	return store, nil
}
