package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluis/snapshots"
)

// TestDemoStartsStopsAndGoesOn is what a newcomer does: start, look, stop,
// start again, start twice, start on a taken port, start over.
func TestDemoStartsStopsAndGoesOn(t *testing.T) {
	data := dataRoot(t)
	p := startDemo(t, data)
	if p.ready.Tokens[care] == "" || p.ready.User == "" || p.ready.Password == "" {
		t.Fatalf("ready line %+v", p.ready)
	}
	for _, url := range []string{p.ready.Console + "/readyz", p.ready.Agents + "/readyz"} {
		resp, err := http.Get(url)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", url, resp, err)
		}
		_ = resp.Body.Close()
	}
	if out, err := command(t.Context(), "demo", "--data", data, "--console", "127.0.0.1:0", "--agents", "127.0.0.1:0").CombinedOutput(); err == nil || !oneSentence(out, "another sluis is running on") {
		t.Errorf("a second start on the same data: %v\n%s", err, out)
	}
	if took := p.stop(); took > 5*time.Second {
		t.Errorf("Ctrl-C took %s, want at most 5 s", took)
	}
	again := startDemo(t, data)
	if again.ready.Password != p.ready.Password || again.ready.Tokens[care] != p.ready.Tokens[care] {
		t.Error("a second start has other people or tokens")
	}
	if got := again.wednesday(); got != 624 {
		t.Errorf("a second start has %d visits on the board, want 624", got)
	}
	again.stop()
	fresh := startDemo(t, data, "--fresh", "--mode", "enforce")
	if fresh.ready.Password == p.ready.Password {
		t.Error("--fresh kept the old password")
	}
	if got := fresh.wednesday(); got != 312 {
		t.Errorf("with the gate on the board holds %d visits, want 312", got)
	}
	fresh.stop()
	checkVerifyFindsDamage(t, data)
}

// checkVerifyFindsDamage copies the stopped installation's bucket to a folder
// and damages the copy: the command says what is wrong, and fails.
func checkVerifyFindsDamage(t *testing.T, data string) {
	t.Helper()
	bucket := filepath.Join(data, "objects", "objects", bucketName)
	key := filepath.Join(data, "snapshot-key.pub")
	other, _, err := snapshots.GenerateKeys("another")
	if err != nil {
		t.Fatal(err)
	}
	whole := copyOf(t, bucket)
	out, err := command(t.Context(), "verify", "--folder", whole, "--key", key).CombinedOutput()
	if err != nil {
		t.Fatalf("the undamaged copy: %v\n%s", err, out)
	}
	head, _, ok := strings.Cut(strings.SplitN(string(out), "head ", 2)[1], "\n")
	if !ok {
		t.Fatalf("no head in %s", out)
	}
	manifest := func(dir string, seq int) string {
		return filepath.Join(dir, care, fmt.Sprintf("manifest-%012d", seq))
	}
	tests := []struct {
		name, key, want string
		damage          func(dir string) error
	}{
		{"a flipped byte in a body", key, "bodies intact    bad", func(dir string) error {
			bodies, err := filepath.Glob(filepath.Join(dir, care, "body-*"))
			if err != nil {
				return err
			}
			return flip(bodies[0])
		}},
		{"a flipped byte in a manifest", key, "signatures good  bad", func(dir string) error { return flip(manifest(dir, 5)) }},
		{"a missing link", key, "chain whole      bad", func(dir string) error { return os.Remove(manifest(dir, 7)) }},
		{"a cut tail", key, "tail present     bad", func(dir string) error {
			seq, _, _ := strings.Cut(head, ":")
			n, err := strconv.Atoi(seq)
			if err != nil {
				return err
			}
			return os.Remove(manifest(dir, n))
		}},
		{"a swapped pair", key, "chain whole      bad", func(dir string) error {
			return errors.Join(os.Rename(manifest(dir, 3), manifest(dir, 0)), os.Rename(manifest(dir, 4), manifest(dir, 3)),
				os.Rename(manifest(dir, 0), manifest(dir, 4)))
		}},
		{"another key", other.VerifierKey(), "signatures good  bad", func(string) error { return nil }},
	}
	for _, tt := range tests {
		dir := copyOf(t, bucket)
		if err := tt.damage(dir); err != nil {
			t.Fatal(err)
		}
		cmd := command(t.Context(), "verify", "--folder", dir, "--key", tt.key, "--integration", care, "--head", head)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != int(verifyFailed) || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %v, want exit code %d and %q in\n%s", tt.name, err, verifyFailed, tt.want, out)
		}
	}
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// flip changes one bit in the middle of a file.
func flip(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	raw[len(raw)/2] ^= 1
	return os.WriteFile(path, raw, 0o600)
}

func TestDemoSaysWhatIsInTheWay(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	foreign := filepath.Join(t.TempDir(), "var")
	if err := os.MkdirAll(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	keep := filepath.Join(foreign, "thesis.txt")
	if err := os.WriteFile(keep, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"busy port", []string{"--data", dataRoot(t), "--console", taken.Addr().String(), "--agents", "127.0.0.1:0"}, "is in use by another program"},
		{"somebody's directory", []string{"--data", foreign, "--fresh", "--console", "127.0.0.1:0", "--agents", "127.0.0.1:0"}, "was not made by sluis"},
	}
	for _, tt := range tests {
		out, err := command(t.Context(), append([]string{"demo"}, tt.args...)...).CombinedOutput()
		if err == nil || !oneSentence(out, tt.want) {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("--fresh removed what is not ours: %v", err)
	}
}

// oneSentence reports whether the output is one line with the text in it.
func oneSentence(out []byte, want string) bool {
	text := strings.TrimSpace(string(out))
	return strings.Contains(text, want) && !strings.Contains(text, "\n")
}

// TestReplayCommand plays the committed traces as the README says.
func TestReplayCommand(t *testing.T) {
	tests := []struct {
		file, mode string
		want       []string
	}{
		{"care-incident.jsonl.zst", "enforce", []string{`"visits":312`, `"duplicate/replay":1`, `"most_clients_before_noon":8`, `"hash_pairs":0`}},
		{"care-incident.jsonl.zst", "shadow", []string{`"visits":624`, `"duplicate/replay":1`, `"hash_pairs":312`}},
		{"care-clock.jsonl.zst", "enforce", []string{`"quarantined/skew"`, `"quarantined/missing_event_id"`, `"quarantined/no_offset"`, `"quarantined/malformed_timestamp"`}},
	}
	for _, tt := range tests {
		t.Run(tt.file+" "+tt.mode, func(t *testing.T) {
			file := filepath.Join("..", "..", "gate", "sandbox", "trace", "testdata", tt.file)
			cmd := command(t.Context(), "replay", file, "--integration", care, "--mode", tt.mode, "--json")
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("want %s in %s", want, out)
				}
			}
		})
	}
}
