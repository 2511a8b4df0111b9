// Package s3test gives each test a fresh bucket with Object Lock on a real S3
// server, one server to a test binary.
//
// A package's TestMain has to call Run, which also serves as the server's own
// process:
//
//	func TestMain(m *testing.M) { os.Exit(s3test.Run(m)) }
//
// With testdb: os.Exit(s3test.Run(testdb.Wrap(m))).
package s3test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server"
)

// Runner is what runs the tests: *testing.M, or another package's wrapping of it.
type Runner interface{ Run() int }

// Run runs the tests, stops the server, removes its data and returns the exit
// code. In the server's own process it does not return.
func Run(m Runner) int {
	s3server.ChildMain()
	current.mu.Lock()
	current.open = true
	current.mu.Unlock()
	defer current.stop()
	return m.Run()
}

// Wrap is Run as a Runner, to hand to another package's Run.
func Wrap(m Runner) Runner { return wrapped{m} }

type wrapped struct{ inner Runner }

func (w wrapped) Run() int { return Run(w.inner) }

var buckets atomic.Int64

// Store is a fresh, empty bucket with versioning and Object Lock.
func Store(t testing.TB) *objectstore.Store {
	t.Helper()
	store, err := objectstore.Open(context.Background(), Config(t))
	if err != nil {
		t.Fatalf("s3test: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := store.EnsureBucket(ctx); err != nil {
		t.Fatalf("s3test: %v", err)
	}
	return store
}

// Config is how to reach a bucket that does not exist yet.
func Config(t testing.TB) objectstore.Config {
	t.Helper()
	server, err := current.get()
	if err != nil {
		t.Fatalf("s3test: %v", err)
	}
	return server.Config(fmt.Sprintf("test-%d", buckets.Add(1)))
}

// Dir is a fresh directory that can hold a store of the test's own, in memory
// where the system offers that, removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := makeDir()
	if err != nil {
		t.Fatalf("s3test: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func makeDir() (string, error) {
	const memory = "/dev/shm"
	sweep(memory)
	if dir, err := os.MkdirTemp(memory, dirPrefix); err == nil {
		if unix.Setxattr(dir, "user.sluis-probe", []byte{1}, 0) == nil {
			return dir, nil
		}
		_ = os.Remove(dir)
	}
	return os.MkdirTemp("", dirPrefix)
}

const dirPrefix = "sluis-s3test-"

// sweep removes what killed test binaries left in memory: no test takes an hour.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
}

// process is the one server of this test binary.
type process struct {
	mu     sync.Mutex
	open   bool // between the start and the end of Run
	dir    string
	server *s3server.Server
	err    error
}

var current process

func (p *process) get() (*s3server.Server, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return nil, errors.New("TestMain does not call s3test.Run")
	}
	if p.server == nil && p.err == nil {
		if p.dir, p.err = makeDir(); p.err == nil {
			p.server, p.err = s3server.Start(context.Background(), s3server.Options{Dir: p.dir})
		}
	}
	return p.server, p.err
}

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
	if p.server != nil {
		_ = p.server.Stop(context.Background())
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}
