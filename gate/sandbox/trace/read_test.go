package trace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluis/gate/sandbox/trace"
)

func TestCommittedTracesAreWhatTheGeneratorMakes(t *testing.T) {
	if err := trace.CheckAll(traces); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := trace.WriteAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := trace.CheckAll(dir); err != nil {
		t.Error(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "care-clock.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "care-incident.jsonl.zst"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trace.CheckAll(dir); err == nil {
		t.Error("another trace passes for the incident")
	}
	if tr, err := trace.Open(filepath.Join(traces, "care-incident.jsonl.zst")); err != nil || len(tr.Seed()) != 88+1495 {
		t.Errorf("the committed incident: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	const meta = `{"step":"meta","at":"2025-10-26T00:00:00Z","meta":{"name":"n","integration":"care","zone":"UTC","from":"2025-10-26T00:00:00Z","to":"2025-10-27T00:00:00Z"}}` + "\n"
	const note = `{"step":"note","at":"2025-10-26T01:00:00Z","note":"n"}` + "\n"
	for name, tc := range map[string]struct{ in, want string }{
		"nothing":         {"", "empty"},
		"no meta":         {note, "line 1: the first step"},
		"meta twice":      {meta + meta, "line 2: the first step"},
		"not JSON":        {meta + "{\n", "line 2: unexpected EOF"},
		"unknown field":   {meta + `{"step":"note","at":"2025-10-26T01:00:00Z","note":"n","x":1}`, `line 2: json: unknown field "x"`},
		"unknown step":    {meta + `{"step":"dance","at":"2025-10-26T01:00:00Z"}`, `line 2: step "dance"`},
		"lacks its field": {meta + `{"step":"deliver","at":"2025-10-26T01:00:00Z"}`, `line 2: step "deliver"`},
		"two on a line":   {meta + `{"step":"note","at":"2025-10-26T01:00:00Z","note":"n"} {}`, "line 2: more than one"},
		"backwards":       {meta + note + note[:len(note)-1] + "\n" + strings.Replace(note, "01:00", "00:30", 1), "line 4: at 2025-10-26T00:30:00Z is before"},
		"outside":         {meta + strings.Replace(note, "-26T", "-28T", 1), "line 2: at is outside"},
		"with an offset":  {meta + strings.Replace(note, "00Z", "00+01:00", 1), "line 2: at is not a time in UTC"},
		"endless line":    {meta + `{"step":"note","note":"` + strings.Repeat("x", 17<<20), "line 2: bufio.Scanner: token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := trace.Read(strings.NewReader(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if tr, err := trace.Read(strings.NewReader(meta + note)); err != nil || len(tr.Steps) != 1 || tr.Steps[0].Line != 2 {
		t.Errorf("a good one: %+v, %v", tr, err)
	}
	if _, err := trace.Open("trace_test.go"); err == nil || !strings.Contains(err.Error(), "trace_test.go") {
		t.Errorf("a file that is not compressed: %v", err)
	}
}
