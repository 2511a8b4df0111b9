package gate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// material reads a file of the shared test material, which is not part of the
// repository.
func material(t *testing.T, path ...string) []byte {
	t.Helper()
	dir := os.Getenv("SLUIS_MATERIAL")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "material")
	}
	text, err := os.ReadFile(filepath.Join(append([]string{dir, "a-vectors"}, path...)...))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the test material is missing; SLUIS_MATERIAL names its folder: %v", err)
		}
		t.Skipf("no test material; SLUIS_MATERIAL names its folder: %v", err)
	}
	return text
}

func testdata(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// jsonLines decodes each line and hands it to do.
func jsonLines[T any](t *testing.T, text []byte, do func(T)) {
	t.Helper()
	n := 0
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		do(row)
		n++
	}
	if lines.Err() != nil || n == 0 {
		t.Fatalf("%d lines read, %v", n, lines.Err())
	}
}
