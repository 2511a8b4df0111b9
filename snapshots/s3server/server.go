package s3server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluis/snapshots/objectstore"
)

const (
	startLimit = 30 * time.Second
	stopLimit  = 3 * time.Second
	portTries  = 5
)

// Options say where the store lives and where it listens.
type Options struct {
	// Dir holds everything; it is created when missing, on a file system with
	// extended attributes.
	Dir string
	// Addr is the loopback address to listen on; empty or port 0 takes a free port.
	Addr string
	// Logger receives what the gateway prints, at debug level; nil discards it.
	Logger *slog.Logger
}

// Server is a running store. Its methods may be called from several goroutines.
type Server struct {
	dir, addr      string
	access, secret string
	cmd            *exec.Cmd
	stdin          io.Closer
	done           chan struct{}
	stop           sync.Once
}

// Start starts the server and returns once it listens. Cancelling ctx gives up
// the start; it does not stop a started server. The process must have called
// ChildMain at its beginning.
//
// Errors: ErrInUse, or what the child said.
func Start(ctx context.Context, opts Options) (*Server, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil || opts.Dir == "" {
		return nil, errors.Join(errors.New("start S3 server: no directory given"), err)
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	access, secret, err := Credentials(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for n := 1; ; n++ {
		addr, free, err := address(opts.Addr)
		if err != nil {
			return nil, fmt.Errorf("start S3 server: %w", err)
		}
		s := &Server{dir: dir, addr: addr, access: access, secret: secret}
		err = s.launch(ctx, log)
		if err == nil {
			return s, writeWhole(filepath.Join(dir, "address"), addr+"\n")
		}
		// A port that was free a moment ago may be taken by now.
		if taken := portTaken(addr); !free || !taken || n == portTries || ctx.Err() != nil {
			if taken && !free {
				return nil, fmt.Errorf("start S3 server: %s is taken by another program: stop that or choose another port", addr)
			}
			return nil, fmt.Errorf("start S3 server in %s: %w", dir, err)
		}
	}
}

// address fills in a free port where none is asked for.
func address(asked string) (addr string, free bool, err error) {
	if asked == "" {
		asked = "127.0.0.1:0"
	}
	host, port, err := net.SplitHostPort(asked)
	if err != nil {
		return "", false, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", false, fmt.Errorf("%s is no loopback address: the store speaks plain HTTP and stays on this machine", asked)
	}
	if port != "0" {
		return asked, false, nil
	}
	l, err := net.Listen("tcp", asked)
	if err != nil {
		return "", false, err
	}
	return l.Addr().String(), true, l.Close()
}

func portTaken(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return true
	}
	_ = l.Close()
	return false
}

func (s *Server) launch(ctx context.Context, log *slog.Logger) error {
	answer, childAnswer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	if err := s.command(childAnswer, log); err != nil {
		return errors.Join(err, childAnswer.Close())
	}
	orderPipe, err := s.cmd.StdinPipe()
	if err != nil {
		return errors.Join(err, childAnswer.Close())
	}
	s.stdin = orderPipe
	err = s.spawn()
	_ = childAnswer.Close() // the child has its own
	if err != nil {
		return err
	}
	if err := json.NewEncoder(orderPipe).Encode(orders{Dir: s.dir, Addr: s.addr, AccessKey: s.access, SecretKey: s.secret}); err != nil {
		s.kill()
		return fmt.Errorf("give orders: %w", err)
	}
	if err := s.awaitAnswer(ctx, answer); err != nil {
		s.kill()
		return err
	}
	return nil
}

func (s *Server) command(answer *os.File, log *slog.Logger) error {
	exe, err := executable()
	if err != nil {
		return err
	}
	s.cmd = exec.Command(exe)
	s.cmd.Args = []string{"sluis-s3", s.dir} // for ps; the child takes its orders from its input
	s.cmd.Env = append(os.Environ(), childEnv+"=1")
	s.cmd.ExtraFiles = []*os.File{answer}
	out := &lineLog{logger: log}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.WaitDelay = time.Second
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only us
	dieWithParent(s.cmd.SysProcAttr)
	return nil
}

// spawn forks on a thread that lives as long as the child: the parent-death
// signal is sent when that thread ends.
func (s *Server) spawn() error {
	s.done = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // how it ended is in its answer and its log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start child: %w", err)
	}
	return nil
}

func (s *Server) awaitAnswer(ctx context.Context, answer io.Reader) error {
	said := make(chan string, 1)
	go func() {
		all, _ := bufio.NewReader(answer).ReadString('\n')
		said <- strings.TrimSpace(all)
	}()
	select {
	case line := <-said:
		switch {
		case line == ready:
			return nil
		case strings.HasPrefix(line, ErrInUse.Error()):
			return fmt.Errorf("%w%s", ErrInUse, strings.TrimPrefix(line, ErrInUse.Error()))
		case line == "":
			return errors.New("the child ended without a word: does the program call s3server.ChildMain first?")
		default:
			return errors.New(line)
		}
	case <-ctx.Done():
		return fmt.Errorf("not ready in time: %w", ctx.Err())
	}
}

// Addr is the host and port where the server listens.
func (s *Server) Addr() string { return s.addr }

// Config is how to reach a bucket of this server.
func (s *Server) Config(bucket string) objectstore.Config {
	return configFor(s.addr, bucket, s.access, s.secret)
}

// Pid is the process id of the child.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Done is closed when the child has exited, whoever ended it.
func (s *Server) Done() <-chan struct{} { return s.done }

// Stop ends the server, by force after three seconds or when ctx ends, which
// loses nothing: what was acknowledged is on the disk. It returns when the child
// has exited; a second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		_ = os.Remove(filepath.Join(s.dir, "address"))
		_ = s.stdin.Close()
	})
	select {
	case <-s.done:
		return nil
	case <-time.After(stopLimit):
	case <-ctx.Done():
	}
	s.kill()
	return nil
}

func (s *Server) kill() {
	_ = s.stdin.Close()
	_ = s.cmd.Process.Kill()
	<-s.done
}

// lineLog passes the child's lines on to a logger.
type lineLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	part   []byte
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.part = rest
		l.logger.Debug("s3 server", "line", string(line))
	}
}
