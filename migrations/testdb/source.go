package testdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/migrations"
	"sluis/migrations/pgserver"
)

const (
	template  = "sluis_template"
	dirPrefix = "sluis-testdb-"
	readyMade = 2 // clones kept ahead of the tests that ask for them
)

// source makes databases: clones of a template that was migrated once.
type source struct {
	dir    string
	server *pgserver.Server
	admin  *pgxpool.Pool
	count  atomic.Int64

	ready chan clone
	quit  context.CancelFunc
	ended chan struct{}
}

type clone struct {
	name string
	err  error
}

func newSource() (_ *source, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	parent := dataParent()
	sweep(parent)
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make directory for the test cluster: %w", err)
	}
	s := &source{dir: dir, ready: make(chan clone, readyMade-1), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			s.discard()
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open directory for the test cluster: %w", err)
	}
	if s.server, err = pgserver.Start(ctx, pgserver.Options{Dir: dir}); err != nil {
		return nil, err
	}
	if s.admin, err = pgxpool.New(ctx, s.server.DSN("postgres")); err != nil {
		return nil, fmt.Errorf("connect to the test cluster: %w", err)
	}
	if err := s.makeTemplate(ctx); err != nil {
		return nil, err
	}
	ahead, quit := context.WithCancel(context.Background())
	s.quit = quit
	go s.makeAhead(ahead)
	return s, nil
}

// dataParent is memory where the system offers it: a clone there takes a quarter of the time.
func dataParent() string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		probe, err := os.MkdirTemp(memory, dirPrefix)
		if err == nil {
			_ = os.Remove(probe)
			return memory
		}
	}
	return os.TempDir()
}

// sweep removes what killed test binaries left: directories older than a minute
// whose lock nobody holds.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

func (s *source) makeTemplate(ctx context.Context) error {
	if err := s.server.EnsureDatabase(ctx, template); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.server.DSN(template))
	if err != nil {
		return fmt.Errorf("connect to the template: %w", err)
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}

func (s *source) makeAhead(ctx context.Context) {
	defer close(s.ended)
	for {
		name, err := s.create(ctx, template)
		select {
		case s.ready <- clone{name, err}:
		case <-ctx.Done():
			return
		}
	}
}

func (s *source) take(ctx context.Context) (string, error) {
	select {
	case c := <-s.ready:
		return c.name, c.err
	case <-ctx.Done():
		return "", fmt.Errorf("wait for a database: %w", ctx.Err())
	}
}

func (s *source) create(ctx context.Context, from string) (string, error) {
	name := fmt.Sprintf("test_%d", s.count.Add(1))
	sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " TEMPLATE " + pgx.Identifier{from}.Sanitize()
	if _, err := s.admin.Exec(ctx, sql); err != nil {
		return "", fmt.Errorf("make database %s: %w", name, err)
	}
	return name, nil
}

func (s *source) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func (s *source) close() {
	s.quit()
	<-s.ended
	s.discard()
}

func (s *source) discard() {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.server != nil {
		// The data goes, so there is nothing to flush: an ended context asks for the immediate stop.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.server.Stop(ctx)
	}
	_ = os.RemoveAll(s.dir)
}
