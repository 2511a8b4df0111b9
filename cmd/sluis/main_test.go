package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluis/migrations/testdb"
	"sluis/snapshots/s3server"
	"sluis/snapshots/s3server/s3test"
	"sluis/web/browsertest"
)

// asSluis makes the test binary behave as the sluis binary, so that a test can
// start, and kill, a whole process of the code under test.
const asSluis = "SLUIS_TEST_AS_SLUIS"

func TestMain(m *testing.M) {
	s3server.ChildMain()
	if os.Getenv(asSluis) != "" {
		os.Exit(run())
	}
	os.Exit(s3test.Run(testdb.Wrap(browsertest.Wrap(m))))
}

// readyLine is what 'sluis demo --json' prints.
type readyLine struct {
	Console  string            `json:"console"`
	Agents   string            `json:"agents"`
	User     string            `json:"user"`
	Password string            `json:"password"`
	Tokens   map[string]string `json:"tokens"`
}

// process is a running sluis.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	data  string
	ready readyLine
	at    addresses
	done  chan struct{} // closed when the process has exited
	log   *bytes.Buffer
}

// dataRoot is a directory that the private Postgres can enter although tests'
// own directories are closed to other users.
func dataRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluis-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "var")
}

// command is a sluis command of this binary.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	if exe, err := os.Executable(); err == nil {
		cmd.Path = exe
	}
	cmd.Env = append(os.Environ(), asSluis+"=1")
	return cmd
}

// startDemo starts a demo on the data and waits until it is ready.
func startDemo(t *testing.T, data string, args ...string) *process {
	t.Helper()
	p := &process{t: t, data: data, done: make(chan struct{}), log: &bytes.Buffer{}}
	args = append([]string{"demo", "--json", "--data", data, "--console", "127.0.0.1:0", "--agents", "127.0.0.1:0",
		"--stale-after", "4s", "--send-timeout", "3s", "--reconcile-every", "1s"}, args...)
	p.cmd = command(context.WithoutCancel(t.Context()), args...)
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = dieWithTest()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.log.Len() > 0 {
			t.Logf("what this process logged:\n%s", p.log)
		}
	})
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, out)
		_ = p.cmd.Wait()
		close(p.done)
	}()
	select {
	case line := <-lines:
		if err := json.Unmarshal([]byte(line), &p.ready); err != nil {
			t.Fatalf("the demo did not become ready: %q\n%s", line, p.log)
		}
	case <-time.After(3 * time.Minute):
		t.Fatalf("the demo did not become ready in time\n%s", p.log)
	}
	raw, err := os.ReadFile(filepath.Join(data, addressFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &p.at); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill is kill -9; it waits until the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop is Ctrl-C; it returns how long the process took to end.
func (p *process) stop() time.Duration {
	p.t.Helper()
	start := time.Now()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("exit code %d\n%s", code, p.log)
	}
	return time.Since(start)
}

// children lists the process ids of direct children, by the name of their
// program.
func (p *process) children() map[string][]int {
	p.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		fields := strings.Fields(string(stat[shut+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(p.cmd.Process.Pid) {
			name := string(stat[open+1 : shut])
			found[name] = append(found[name], pid)
		}
	}
	return found
}

// agentCall calls the agents' API with the demo's token.
func (p *process) agentCall(method, path string, body any) (int, map[string]any, error) {
	return call(method, p.ready.Agents+path, p.ready.Tokens[care], body)
}

// records calls the simulated record system.
func (p *process) records(method, path string, body any) map[string]any {
	p.t.Helper()
	status, answer, err := call(method, p.at.Records+path, "", body)
	if err != nil || status >= 400 {
		p.t.Fatalf("%s %s: %d %v %v", method, path, status, answer, err)
	}
	return answer
}

func call(method, url, token string, body any) (int, map[string]any, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Timeout: 90 * time.Second}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, nil, err
	}
	var answer map[string]any
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			return resp.StatusCode, nil, fmt.Errorf("%w in %q", err, text)
		}
	}
	return resp.StatusCode, answer, nil
}

// live is the record system's whole state, by id.
func (p *process) live() map[string]map[string]any {
	p.t.Helper()
	all, after := map[string]map[string]any{}, ""
	for {
		page := p.records(http.MethodGet, "/v1/live?limit=1000&after="+after, nil)
		list, ok := page["entities"].([]any)
		if !ok {
			p.t.Fatalf("live: %v", page)
		}
		for _, e := range list {
			entity := e.(map[string]any)
			all[fmt.Sprint(entity["type"], "/", entity["id"])] = entity["state"].(map[string]any)
		}
		if after, _ = page["next"].(string); after == "" {
			return all
		}
	}
}

// wednesday counts the visits of the incident's board.
func (p *process) wednesday() int {
	n := 0
	for _, state := range p.live() {
		if state["day"] == "2025-10-29" {
			n++
		}
	}
	return n
}

// eventually waits until the condition holds, asking often.
func eventually(t *testing.T, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within %s: %s", limit, what)
}

// discard is a logger for servers whose log no test reads.
var discard = slog.New(slog.DiscardHandler)
