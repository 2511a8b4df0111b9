package sandbox_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"sluis/gate"
	"sluis/gate/sandbox"
)

const childEnv = "SANDBOX_TEST_CHILD"

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Fprintln(os.Stderr, serveAlone(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveAlone(dir string) error {
	sys, err := sandbox.Open(dir, sandbox.Options{Clock: gate.NewManualClock(start).Now})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, sys.Handler())
}

// child starts a system in a process of its own.
func child(t *testing.T, dir string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line), kill
}

func TestKillLosesNothingThatWasAnswered(t *testing.T) {
	dir := t.TempDir()
	url, kill := child(t, dir)
	c := &care{t: t, url: url}
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		answered = map[string]any{} // id by key
		tried    = map[string]bool{}
	)
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("k-%d-%d", w, i)
				mu.Lock()
				tried[key] = true
				mu.Unlock()
				r, err := c.do("POST", "/v1/visit", `{"key":"`+key+`"}`, "Idempotency-Key", key)
				if err != nil {
					return // killed
				}
				mu.Lock()
				answered[key] = r.Body["id"]
				enough := len(answered) == 300
				mu.Unlock()
				if enough {
					kill()
				}
			}
		})
	}
	wg.Wait()

	after := open(t, dir)
	if n := len(after.Snapshot()); n < len(answered) || n > len(tried) {
		t.Errorf("%d visits; %d were answered and %d tried", n, len(answered), len(tried))
	}
	for key := range tried {
		r := after.must(201, "POST", "/v1/visit", `{"key":"`+key+`"}`, "Idempotency-Key", key)
		if id, ok := answered[key]; ok && (!r.Replayed || r.Body["id"] != id) {
			t.Errorf("%s was answered with %v and now gets %v, replayed %v", key, id, r.Body["id"], r.Replayed)
		}
	}
	if n := len(after.Snapshot()); n != len(tried) {
		t.Errorf("%d visits for %d keys", n, len(tried))
	}
	if d := after.DoubleApplied(); len(d) > 0 {
		t.Errorf("double applied: %v", d)
	}
}
