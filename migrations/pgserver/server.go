package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	role = "sluis"
	port = 5432 // names the socket file; nothing listens on TCP

	startLimit     = 30 * time.Second
	fastLimit      = 5 * time.Second
	immediateLimit = 2 * time.Second
	pollEvery      = 10 * time.Millisecond
)

var (
	// ErrNoBinaries means that initdb and postgres were not found, or not in the
	// version that the existing data needs.
	ErrNoBinaries = errors.New("PostgreSQL's server programs are missing")
	// ErrClosedDir means that the user that PostgreSQL has to run as cannot enter the directory.
	ErrClosedDir = errors.New("directory is closed to PostgreSQL's user")
	// ErrInUse means that a running process owns the directory.
	ErrInUse = errors.New("data directory is in use by another sluis process")
)

// Options say where the cluster lives and how safe it is.
type Options struct {
	// Dir holds the data and the socket; it is created when missing.
	Dir string
	// Durable keeps fsync, full-page writes, synchronous commit and autovacuum on.
	// Tests that crash nothing switch them off: a power cut then loses the data.
	Durable bool
	// Logger receives the child's own log at debug level; nil discards it.
	Logger *slog.Logger
}

// Server is a running cluster. Its methods may be called from several goroutines.
type Server struct {
	socketDir string
	tempDir   string // removed at Stop; empty when the socket lives in Dir
	lock      *os.File
	log       *tailLog
	cmd       *exec.Cmd
	done      chan struct{}
}

// Start starts the cluster in opts.Dir, making it first when there is none, and
// returns once it accepts connections. Cancelling ctx gives up the start; it
// does not stop a started server.
//
// Errors: ErrNoBinaries, ErrClosedDir, ErrInUse, or what the child said last.
func Start(ctx context.Context, opts Options) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c, err := newCluster(opts.Dir, log)
	if err != nil {
		return nil, err
	}
	s := &Server{lock: c.lock}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	if err := c.initialise(ctx, opts.Durable); err != nil {
		return nil, err
	}
	if s.socketDir, s.tempDir, err = c.makeSocketDir(); err != nil {
		return nil, err
	}
	return s, s.run(ctx, c, opts.Durable)
}

// run starts the child and waits until it accepts connections.
func (s *Server) run(ctx context.Context, c *cluster, durable bool) error {
	s.log = &tailLog{logger: c.log}
	s.done = make(chan struct{})
	s.cmd = c.command("postgres", serverArgs(c.data, s.socketDir, durable)...)
	s.cmd.Stderr = s.log
	s.cmd.WaitDelay = immediateLimit
	started := make(chan error, 1)
	go func(cmd *exec.Cmd, done chan struct{}) {
		// The parent-death signal is sent when the thread that forked ends, so
		// this goroutine keeps its thread until the child has exited.
		runtime.LockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}(s.cmd, s.done)
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := s.awaitReady(ctx); err != nil {
		s.kill()
		return fmt.Errorf("start postgres in %s: %w; its last words: %s", c.data, err, s.log)
	}
	return nil
}

func serverArgs(data, socketDir string, durable bool) []string {
	settings := []string{
		"listen_addresses=", "port=" + strconv.Itoa(port),
		"unix_socket_directories=" + socketDir, "unix_socket_permissions=0700",
		"max_connections=200", "shared_buffers=128MB", "timezone=UTC", "log_timezone=UTC",
		"lc_messages=C", "logging_collector=off", "log_destination=stderr",
		"log_min_messages=log", "log_checkpoints=off",
	}
	if !durable {
		settings = append(settings, "fsync=off", "full_page_writes=off", "synchronous_commit=off",
			"autovacuum=off", "max_wal_size=2GB")
	}
	args := []string{"-D", data}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

func (s *Server) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.DSN("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.done:
			return errors.New("it exited")
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// DSN is the connection string of a database of this cluster, for pgx.
func (s *Server) DSN(database string) string { return dsn(s.socketDir, database) }

func dsn(socketDir, database string) string {
	q := url.Values{"host": {socketDir}, "port": {strconv.Itoa(port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: q.Encode()}
	return u.String()
}

// EnsureDatabase creates the database when there is none of that name.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("ensure database %s: %w", name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	const duplicateDatabase, uniqueViolation = "42P04", "23505" // the latter from a race of two creations
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == duplicateDatabase || pgErr.Code == uniqueViolation) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ensure database %s: %w", name, err)
	}
	return nil
}

// Done is closed when the child has exited, whoever ended it.
func (s *Server) Done() <-chan struct{} { return s.done }

// Pid is the process id of the child (the postmaster).
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Stop shuts the cluster down fast: sessions are ended, data is flushed. After
// five seconds, or when ctx ends, it is shut down at once, which the next start
// repairs from the log; after two more it is killed. Stop returns when the
// child has exited; a second Stop does nothing. The error says that the child
// had to be forced.
func (s *Server) Stop(ctx context.Context) error {
	defer s.release()
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-s.done:
		return nil
	case <-time.After(fastLimit):
	case <-ctx.Done():
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.done:
		return errors.New("stop postgres: it did not shut down in time and was stopped at once; the next start recovers from its log")
	case <-time.After(immediateLimit):
	}
	s.kill()
	return errors.New("stop postgres: it did not react and was killed; the next start recovers from its log")
}

func (s *Server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

func (s *Server) release() {
	if s.tempDir != "" {
		_ = os.RemoveAll(s.tempDir)
	}
	_ = s.lock.Close()
}

// RunningDSN is the connection string of a database of the cluster that another
// process runs in dir, so that commands can use it meanwhile; false when none runs.
func RunningDSN(dir, database string) (string, bool) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", false
	}
	c := &cluster{data: filepath.Join(abs, "data")}
	pid, socketDir := c.pidFile()
	if pid == 0 || socketDir == "" || !isPostmaster(pid, c.data) {
		return "", false
	}
	return dsn(socketDir, database), true
}
