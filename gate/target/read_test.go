package target_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluis/gate"
	"sluis/gate/sandbox"
	"sluis/gate/target"
)

func TestAbsenceNeedsProof(t *testing.T) {
	date := start.Format(http.TimeFormat)
	for name, tc := range map[string]struct {
		status, body string
		retention    time.Duration
		want         gate.LookUpClass
	}{
		"memory reaches back":      {"404 Not Found", `{"applied":false,"known_since":"2025-10-25T00:00:00Z"}`, 0, gate.Absent},
		"memory too short":         {"404 Not Found", `{"applied":false,"known_since":"2025-10-26T00:00:00Z"}`, 0, gate.Forgotten},
		"memory within the margin": {"404 Not Found", `{"applied":false,"known_since":"2025-10-25T22:59:30Z"}`, 0, gate.Forgotten},
		"no word, no retention":    {"404 Not Found", `{"applied":false}`, 0, gate.Forgotten},
		"retention covers it":      {"404 Not Found", `{"applied":false}`, 2 * time.Hour, gate.Absent},
		"retention is over":        {"404 Not Found", `{"applied":false}`, 30 * time.Minute, gate.Forgotten},
		"a proxy's 404":            {"404 Not Found", `<html>`, 24 * time.Hour, gate.NoAnswer},
		"a problem":                {"404 Not Found", `{"title":"Not Found"}`, 24 * time.Hour, gate.NoAnswer},
		"contradiction":            {"200 OK", `{"applied":false,"known_since":"2025-10-25T00:00:00Z"}`, 0, gate.NoAnswer},
		"error":                    {"500 Internal Server Error", `{"applied":false,"known_since":"2025-10-25T00:00:00Z"}`, 0, gate.NoAnswer},
		"found without entity":     {"200 OK", `{"applied":true,"ref":"V-1"}`, 0, gate.Found},
	} {
		t.Run(name, func(t *testing.T) {
			srv := listen(t, func(_ int64, c net.Conn) bool {
				return say(c, fmt.Sprintf("HTTP/1.1 %s\r\nDate: %s\r\nContent-Length: %d\r\n\r\n%s", tc.status, date, len(tc.body), tc.body))
			})
			h := dial(t, target.Config{BaseURL: srv.url, KeyRetention: tc.retention})
			if got := h.LookUp(t.Context(), gate.Key{1}, start.Add(-time.Hour)); got.Class != tc.want {
				t.Errorf("%+v, want %s", got, tc.want)
			}
		})
	}
}

func TestForgottenKeysAreNoProof(t *testing.T) {
	sys, h, clock := care(t, target.Config{})
	clock.Advance(time.Hour)
	if err := sys.SetFaults([]sandbox.Fault{{Kind: sandbox.ForgetKeys}}); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[time.Duration]gate.LookUpClass{30 * time.Minute: gate.Forgotten, 2 * time.Hour: gate.Absent} {
		if got := h.LookUp(t.Context(), gate.Key{1}, start.Add(since)); got.Class != want {
			t.Errorf("reserved after %s: %+v, want %s", since, got, want)
		}
	}
}

func TestLiveReadsEverything(t *testing.T) {
	sys, h, _ := care(t, target.Config{})
	var seed []gate.Entity
	for i := range 25 {
		seed = append(seed, gate.Entity{Type: "visit", ID: fmt.Sprintf("V-%06d", i+1), Version: 1,
			State: json.RawMessage(`{"q":9007199254740993}`), UpdatedAt: start, UpdatedBy: "planner"})
	}
	if err := sys.Seed(seed); err != nil {
		t.Fatal(err)
	}
	var got []gate.Entity
	for after, more := "", true; more; more = after != "" {
		page, next, err := h.Live(t.Context(), after, 10)
		if err != nil {
			t.Fatal(err)
		}
		got, after = append(got, page...), next
	}
	if diff := cmp.Diff(seed, got); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	e, err := h.Read(t.Context(), "visit", "V-000003")
	if err != nil || !cmp.Equal(e, seed[2]) {
		t.Errorf("read: %+v, %v", e, err)
	}
}

func TestEveryWrongFieldIsReported(t *testing.T) {
	_, err := target.New(target.Config{BaseURL: "ftp://care", Timeout: -1, Definite: []int{500}, KeyHeader: "a b"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"ftp://care", "negative", "500", "spaces"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}
