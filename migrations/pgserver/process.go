package pgserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"sync"
)

// runUntil runs a program to its end on a thread that outlives it, see Server.run.
func runUntil(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	select {
	case err := <-ended:
		return out.Bytes(), err
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		<-ended
		return out.Bytes(), fmt.Errorf("given up: %w", ctx.Err())
	}
}

const tailLines = 12

// tailLog passes the child's lines on to a logger and keeps the last ones for an error text.
type tailLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	part []byte
	last []string
}

func (t *tailLog) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.part = rest
		t.last = append(t.last, string(line))
		if len(t.last) > tailLines {
			t.last = t.last[1:]
		}
		t.logger.Debug("postgres", "line", string(line))
	}
}

// String is the last lines, in one.
func (t *tailLog) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.last, " | ")
}
