package pgserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const parentEnv = "SLUIS_TEST_PGSERVER_PARENT"

// TestMain doubles as the parent process that a test kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		s, err := Start(context.Background(), Options{Dir: dir, Durable: true})
		if err != nil {
			fmt.Println("ERROR", err)
			os.Exit(1)
		}
		fmt.Println("READY", s.Pid())
		select {}
	}
	os.Exit(m.Run())
}

// tempDir is a directory that PostgreSQL's user can reach; testing's own are closed to it.
func tempDir(t *testing.T) string {
	t.Helper()
	if _, err := BinDir(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "sluis-pgserver-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, dir string, durable bool) *Server {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: dir, Durable: durable})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-s.Done():
		default:
			_ = s.Stop(context.Background())
		}
	})
	return s
}

func exec1(t *testing.T, s *Server, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query1(t *testing.T, s *Server, database, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var v string
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestDataSurvivesStopAndStart(t *testing.T) {
	dir := tempDir(t)
	s := start(t, dir, true)
	for range 2 {
		if err := s.EnsureDatabase(t.Context(), "we ird"); err != nil {
			t.Fatal(err)
		}
	}
	exec1(t, s, "we ird", "CREATE TABLE t (v text); INSERT INTO t VALUES ('kept')")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	s = start(t, dir, true)
	if got := query1(t, s, "we ird", "SELECT v FROM t"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestSettings(t *testing.T) {
	dir := tempDir(t)
	for _, durable := range []bool{true, false} {
		s := start(t, dir, durable)
		want := map[bool]string{true: "on", false: "off"}[durable]
		for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit", "autovacuum"} {
			if got := query1(t, s, "postgres", "SHOW "+name); got != want {
				t.Errorf("durable %v: %s is %s, want %s", durable, name, got, want)
			}
		}
		for name, want := range map[string]string{"listen_addresses": "", "TimeZone": "UTC", "lc_collate": "C", "server_encoding": "UTF8"} {
			if got := query1(t, s, "postgres", "SELECT coalesce(current_setting('"+name+"', true), (SELECT datcollate FROM pg_database WHERE datname = 'postgres'))"); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStartAfterPostmasterWasKilled(t *testing.T) {
	dir := tempDir(t)
	s := start(t, dir, true)
	exec1(t, s, "postgres", "CREATE TABLE t (v text); INSERT INTO t VALUES ('kept')")
	idle, err := pgx.Connect(t.Context(), s.DSN("postgres")) // a backend that has to end by itself
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close(context.Background()) }()
	if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	_ = s.Stop(t.Context()) // releases the directory
	s = start(t, dir, true)
	if got := query1(t, s, "postgres", "SELECT v FROM t"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

// awaitNobody waits for processes that are not our children, so there is no signal to wait on.
func awaitNobody(t *testing.T, data string) {
	t.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for len(inhabitants(data)) > 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("postgres outlives its parent: %v", inhabitants(data))
		}
	}
}

// TestOrphanIsStopped meets a cluster whose owner is gone while it still runs, as
// happens where the kernel knows no parent-death signal.
func TestOrphanIsStopped(t *testing.T) {
	dir := tempDir(t)
	orphan := start(t, dir, true)
	exec1(t, orphan, "postgres", "CREATE TABLE t (v text); INSERT INTO t VALUES ('kept')")
	if err := orphan.lock.Close(); err != nil { // what the end of its owner does
		t.Fatal(err)
	}
	s := start(t, dir, true)
	<-orphan.Done()
	if got := query1(t, s, "postgres", "SELECT v FROM t"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestChildDiesWithItsParentAndStartsAgain(t *testing.T) {
	dir := tempDir(t)
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
	pid, err := strconv.Atoi(strings.Fields(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir, Durable: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("second start: %v, want ErrInUse", err)
	}
	if got, ok := RunningDSN(dir, "postgres"); !ok || !strings.Contains(got, "/postgres?") {
		t.Errorf("RunningDSN = %q, %v", got, ok)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	if runtime.GOOS == "linux" { // elsewhere the next start ends it
		awaitNobody(t, filepath.Join(dir, "data"))
	}
	s := start(t, dir, true)
	if isPostmaster(pid, filepath.Join(dir, "data")) {
		t.Errorf("postmaster %d outlived its parent", pid)
	}
	if _, ok := RunningDSN(dir, "postgres"); !ok {
		t.Error("RunningDSN does not find the new server")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, ok := RunningDSN(dir, "postgres"); ok {
		t.Errorf("RunningDSN after stop = %q", got)
	}
}

func TestStalePidOfAnotherProgram(t *testing.T) {
	dir := tempDir(t)
	s := start(t, dir, true)
	old, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(old), "\n")
	recycled := strconv.Itoa(os.Getppid()) + "\n" + rest // lives, and is no postmaster
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(recycled), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, dir, true)
}

func TestLongPathPutsSocketElsewhere(t *testing.T) {
	dir := filepath.Join(tempDir(t), strings.Repeat("long", 30))
	s := start(t, dir, false)
	temp := s.tempDir
	if temp == "" {
		t.Fatal("socket stays in a directory whose path is too long")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary directory stays: %v", err)
	}
}

func TestHalfMadeClusterIsMadeAnew(t *testing.T) {
	dir := tempDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, dir, false)
}

func TestRefusals(t *testing.T) {
	t.Run("closed directory", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root runs PostgreSQL as another user")
		}
		dir := tempDir(t)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), Options{Dir: filepath.Join(dir, "pg")})
		if !errors.Is(err, ErrClosedDir) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("files that are no cluster", func(t *testing.T) {
		dir := tempDir(t)
		if err := os.MkdirAll(filepath.Join(dir, "data", "photos"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), Options{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), "no PostgreSQL cluster") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("data of another version", func(t *testing.T) {
		dir := tempDir(t)
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), Options{Dir: dir})
		if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "postgresql-9") {
			t.Errorf("got %v", err)
		}
	})
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	dir := tempDir(t)
	if _, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	start(t, dir, false) // nothing of the first stands in the way
}
