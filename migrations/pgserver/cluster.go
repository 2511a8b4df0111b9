package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxSocketPath = 100 // sun_path holds 104 bytes on macOS, 108 on Linux
	tempPrefix    = "sluis-pg-"
)

// cluster is a directory that this process has locked, and what runs in it.
type cluster struct {
	dir, data string
	bin       string
	owner     *owner // nil: run as ourselves
	lock      *os.File
	log       *slog.Logger
}

func newCluster(dir string, log *slog.Logger) (*cluster, error) {
	if dir == "" {
		return nil, errors.New("start postgres: no directory given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	c := &cluster{dir: dir, data: filepath.Join(dir, "data"), log: log}
	if c.bin, err = findBinaries(c.dataVersion()); err != nil {
		return nil, err
	}
	if c.owner, err = unprivileged(); err != nil {
		return nil, err
	}
	if err := c.owner.canReach(dir); err != nil {
		return nil, err
	}
	if c.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	return c, nil
}

// lockDir takes the directory for this process. The kernel drops the lock when
// the process ends, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s; stop that process first or choose another directory", ErrInUse, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// dataVersion is the major version that made the data, or "" when there is none.
func (c *cluster) dataVersion() string {
	b, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// pidFile reads postmaster.pid: the process id (line 1) and the socket's directory (line 5).
func (c *cluster) pidFile() (pid int, socketDir string) {
	b, err := os.ReadFile(filepath.Join(c.data, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(b), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return 0, ""
	}
	if len(lines) > 4 {
		socketDir = strings.TrimSpace(lines[4])
	}
	return pid, socketDir
}

// settle deals with what a crash left behind. We hold the lock, so what still
// runs here has lost its parent: it is given a moment to die, then stopped. After
// that postmaster.pid is stale for certain, and is removed: its pid may be a
// zombie's or another program's by now, and PostgreSQL would refuse to start.
func (c *cluster) settle(ctx context.Context) error {
	pid, socketDir := c.pidFile()
	if err := c.endOrphans(ctx); err != nil {
		return err
	}
	if pid == 0 {
		return nil
	}
	if err := os.Remove(filepath.Join(c.data, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	if socketDir == c.runDir() || isTemp(socketDir) {
		if err := os.RemoveAll(socketDir); err != nil {
			return fmt.Errorf("remove stale socket: %w", err)
		}
	}
	return nil
}

func (c *cluster) endOrphans(ctx context.Context) error {
	var pids []int
	for _, sig := range []syscall.Signal{0, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if pids = inhabitants(c.data); len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			c.log.InfoContext(ctx, "postgres of a crashed process still runs", "pid", pid, "signal", int(sig))
			_ = syscall.Kill(pid, sig)
		}
		if c.awaitEmpty(ctx, immediateLimit) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for postgres of a crashed process to end: %w", err)
		}
	}
	return fmt.Errorf("postgres of a crashed process does not end: end processes %v by hand, then start again", pids)
}

func (c *cluster) awaitEmpty(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for len(inhabitants(c.data)) > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// initialise runs initdb beside the final place and renames, so that a crash in
// the middle leaves nothing that looks like a cluster.
func (c *cluster) initialise(ctx context.Context, durable bool) error {
	if c.dataVersion() != "" {
		return nil
	}
	if entries, err := os.ReadDir(c.data); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s holds files but no PostgreSQL cluster: move it away or choose another directory", c.data)
	}
	fresh := c.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear half-made cluster: %w", err)
	}
	if err := c.ownDir(fresh); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", role, "-A", "trust", "--locale=C", "-E", "UTF8", "--no-instructions"}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := c.command("initdb", args...)
	out, err := runUntil(ctx, cmd)
	if err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", fresh, err, lastLines(out, 8))
	}
	if err := os.Remove(c.data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("publish cluster: %w", err)
	}
	if err := os.Rename(fresh, c.data); err != nil {
		return fmt.Errorf("publish cluster: %w", err)
	}
	return nil
}

func (c *cluster) runDir() string { return filepath.Join(c.dir, "run") }

func isTemp(dir string) bool {
	return filepath.Dir(dir) == filepath.Clean(os.TempDir()) && strings.HasPrefix(filepath.Base(dir), tempPrefix)
}

// makeSocketDir returns the directory of the socket, and the same as temp where it is a temporary one.
func (c *cluster) makeSocketDir() (dir, temp string, err error) {
	dir = c.runDir()
	if len(filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(port))) <= maxSocketPath {
		return dir, "", c.ownDir(dir)
	}
	if dir, err = os.MkdirTemp("", tempPrefix); err != nil {
		return "", "", fmt.Errorf("make directory for the socket: %w", err)
	}
	if err := c.owner.canReach(filepath.Dir(dir)); err != nil {
		_ = os.RemoveAll(dir)
		return "", "", err
	}
	return dir, dir, c.ownDir(dir)
}

// ownDir makes a directory that only PostgreSQL's user (and root) can enter.
func (c *cluster) ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if c.owner == nil {
		return nil
	}
	if err := os.Chown(dir, c.owner.uid, c.owner.gid); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

// command prepares one of PostgreSQL's programs: as the right user, in a process
// group of its own (so that Ctrl-C reaches only us), tied to our life, in C and UTC,
// and without our environment (a PGDATA or PGPORT of the caller means another cluster).
func (c *cluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Dir = c.dir
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + c.bin + ":/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.owner != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.owner.uid), Gid: uint32(c.owner.gid)}
	}
	dieWithParent(cmd.SysProcAttr)
	return cmd
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(slices.DeleteFunc(lines[max(0, len(lines)-n):], func(l string) bool { return l == "" }), " | ")
}
