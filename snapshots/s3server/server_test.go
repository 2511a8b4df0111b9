package s3server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server"
	"sluis/snapshots/s3server/s3test"
)

const parentEnv = "SLUIS_TEST_S3SERVER_PARENT"

// TestMain doubles as the server's process and as a parent that a test kills.
func TestMain(m *testing.M) {
	s3server.ChildMain()
	if dir := os.Getenv(parentEnv); dir != "" {
		s, err := s3server.Start(context.Background(), s3server.Options{Dir: dir})
		if err != nil {
			fmt.Println("ERROR", err)
			os.Exit(1)
		}
		fmt.Println("READY", s.Addr(), s.Pid())
		select {}
	}
	os.Exit(s3test.Run(m))
}

func start(t *testing.T, opts s3server.Options) *s3server.Server {
	t.Helper()
	s, err := s3server.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

func open(t *testing.T, cfg objectstore.Config) *objectstore.Store {
	t.Helper()
	store, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// checkLocked says whether the object is as its receipt says, and cannot be deleted.
func checkLocked(t *testing.T, s *objectstore.Store, r objectstore.Receipt, body string) {
	t.Helper()
	head, err := s.Head(t.Context(), r.Key)
	if err != nil || head != r {
		t.Errorf("head %+v, %v, want %+v", head, err, r)
	}
	if got, err := s.Get(t.Context(), r.Key, r.VersionID); err != nil || string(got) != body {
		t.Errorf("body %q, %v", got, err)
	}
	if err := s.DeleteVersion(t.Context(), r.Key, r.VersionID); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("delete: %v, want ErrLocked", err)
	}
}

func TestRestartKeepsObjectsLocksAndCredentials(t *testing.T) {
	dir := s3test.Dir(t)
	s := start(t, s3server.Options{Dir: dir})
	store := open(t, s.Config("kept"))
	r, err := store.Put(t.Context(), "a/b", []byte("x"), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	again := start(t, s3server.Options{Dir: dir, Addr: s.Addr()})
	checkLocked(t, store, r, "x") // the same address and keys serve the old client
	if again.Pid() == s.Pid() {
		t.Error("no new child")
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	dir := s3test.Dir(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "READY") {
		t.Fatalf("parent says %q, %v", line, err)
	}
	cfg, ok := s3server.RunningConfig(dir, "kept")
	if !ok {
		t.Fatal("RunningConfig does not find the server")
	}
	store := open(t, cfg)
	r, err := store.Put(t.Context(), "k", []byte("x"), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s3server.Start(t.Context(), s3server.Options{Dir: dir}); !errors.Is(err, s3server.ErrInUse) {
		t.Errorf("second start: %v, want ErrInUse", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	s := start(t, s3server.Options{Dir: dir}) // takes the directory, so the old child is gone
	checkLocked(t, open(t, s.Config("kept")), r, "x")
}

func TestKilledChild(t *testing.T) {
	dir := s3test.Dir(t)
	s := start(t, s3server.Options{Dir: dir})
	r, err := open(t, s.Config("kept")).Put(t.Context(), "k", []byte("x"), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(s.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if _, ok := s3server.RunningConfig(dir, "kept"); ok {
		t.Error("RunningConfig finds a dead server")
	}
	s = start(t, s3server.Options{Dir: dir})
	checkLocked(t, open(t, s.Config("kept")), r, "x")
}

func TestStartRefusals(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	for _, c := range []struct {
		name, addr, want string
		prepare          func(t *testing.T, dir string)
	}{
		{name: "busy port", addr: busy.Addr().String(), want: "is taken by another program"},
		{name: "open to the network", addr: "0.0.0.0:0", want: "no loopback address"},
		{name: "objects without the marker", want: "format is missing", prepare: func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "objects", "bucket"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "another format", want: "use the program that made the data", prepare: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "format"), []byte("sidecar\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "broken credentials", want: "does not hold a key pair", prepare: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "credentials"), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := s3test.Dir(t)
			if c.prepare != nil {
				c.prepare(t, dir)
			}
			_, err := s3server.Start(t.Context(), s3server.Options{Dir: dir, Addr: c.addr})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
}

func TestCredentialsArePrivateAndStable(t *testing.T) {
	dir := s3test.Dir(t)
	access, secret, err := s3server.Credentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, secretAgain, err := s3server.Credentials(dir)
	if err != nil || again != access || secretAgain != secret || len(secret) < 32 {
		t.Errorf("second call: %q, %v", again, err)
	}
	info, err := os.Stat(filepath.Join(dir, "credentials"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
