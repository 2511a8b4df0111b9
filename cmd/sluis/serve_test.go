package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluis/gate/sandbox"
	"sluis/migrations/testdb"
	"sluis/snapshots/s3server/s3test"
)

// TestServeWithStoresFromTheEnvironment runs the service as an operator does:
// an external Postgres and bucket, a person and a token made on the command
// line, an agent that sends, a snapshot that verifies.
func TestServeWithStoresFromTheEnvironment(t *testing.T) {
	records, err := sandbox.Open(t.TempDir(), sandbox.Options{Clock: time.Now, Token: "records-secret"})
	if err != nil {
		t.Fatal(err)
	}
	target := httptest.NewServer(records.Handler())
	t.Cleanup(target.Close)
	bucket := s3test.Config(t)
	env := append(os.Environ(), asSluis+"=1",
		"SLUIS_DATABASE_URL="+testdb.EmptyDSN(t), "SLUIS_S3_ENDPOINT="+bucket.Endpoint, "SLUIS_S3_BUCKET="+bucket.Bucket,
		"SLUIS_S3_REGION="+bucket.Region, "AWS_ACCESS_KEY_ID="+bucket.AccessKey, "AWS_SECRET_ACCESS_KEY="+bucket.SecretKey,
		"SLUIS_CARE_URL="+target.URL, "SLUIS_CARE_TOKEN=records-secret", "SLUIS_PASSWORD=a long enough password")
	run := func(args ...string) *exec.Cmd {
		cmd := command(t.Context(), args...)
		cmd.Env = env
		return cmd
	}
	for _, want := range []string{"migrations applied", "0 migrations applied"} {
		if out, err := run("migrate").CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("migrate: %v\n%s", err, out)
		}
	}
	data := dataRoot(t)
	serve := run("serve", "--data", data, "--console", "127.0.0.1:0", "--agents", "127.0.0.1:0")
	serve.SysProcAttr = dieWithTest()
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, data: data, cmd: serve}
	var seen strings.Builder
	for lines := bufio.NewScanner(log); p.ready.Console == "" && lines.Scan(); {
		seen.WriteString(lines.Text() + "\n")
		var line struct{ Msg, Console, Agents string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			p.ready.Console, p.ready.Agents = line.Console, line.Agents
		}
	}
	if p.ready.Console == "" {
		t.Fatalf("not ready:\n%s", seen.String())
	}
	go func() { _, _ = bufio.NewReader(log).WriteTo(&seen) }()

	if out, err := run("user", "add", "anna", "--role", "planner").CombinedOutput(); err != nil {
		t.Fatalf("user add: %v\n%s", err, out)
	}
	token, err := run("token", "create", "planning-agent", "--integration", care).Output()
	if err != nil {
		t.Fatalf("token create: %v\n%s", err, token)
	}
	p.ready.User, p.ready.Password = "anna", "a long enough password"
	p.ready.Tokens = map[string]string{care: strings.TrimSpace(string(token))}
	status, answer, err := p.agentCall(http.MethodPost, mutationsPath, mutation("evt-serve"))
	if err != nil || status != http.StatusOK || answer["state"] != "committed" {
		t.Errorf("a mutation: %d %v %v", status, answer, err)
	}
	if n := len(records.Snapshot()); n != 1 {
		t.Errorf("the record system holds %d visits, want 1", n)
	}
	if err := signIn(t, p).take(); err != nil {
		t.Error(err)
	}
	if out, err := run("verify", "--data", data).CombinedOutput(); err != nil || !strings.Contains(string(out), "tail present     good") {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if err := serve.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v\n%s", err, seen.String())
	}
}

func TestServeSaysWhatIsMissing(t *testing.T) {
	cmd := command(t.Context(), "serve", "--data", dataRoot(t), "--console", "127.0.0.1:0", "--agents", "127.0.0.1:0")
	out, err := cmd.CombinedOutput()
	if err == nil || !oneSentence(out, "SLUIS_CARE_URL is not set") {
		t.Errorf("%v\n%s", err, out)
	}
}
