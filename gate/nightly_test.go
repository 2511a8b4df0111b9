package gate

import (
	"testing"
	"time"
)

func TestNightlyComesOnceEachNight(t *testing.T) {
	tests := map[string]string{ // from: next, both UTC
		"2025-07-01T01:14:59Z": "2025-07-01T01:15:00Z",
		"2025-07-01T01:15:00Z": "2025-07-02T01:15:00Z",
		"2025-12-31T23:00:00Z": "2026-01-01T02:15:00Z",
		"2025-10-26T00:30:00Z": "2025-10-26T02:15:00Z", // 02:30 comes twice that night, 03:15 once
		"2025-10-26T01:30:00Z": "2025-10-26T02:15:00Z",
		"2025-10-26T02:15:00Z": "2025-10-27T02:15:00Z",
		"2025-03-29T02:15:00Z": "2025-03-30T01:15:00Z", // 02:15 does not exist that night, 03:15 does
		"2025-03-30T01:15:00Z": "2025-03-31T01:15:00Z",
	}
	for from, want := range tests {
		at, err := time.Parse(time.RFC3339, from)
		if err != nil {
			t.Fatal(err)
		}
		if got := nightly.Next(at).Format(time.RFC3339); got != want {
			t.Errorf("after %s: %s, want %s", from, got, want)
		}
	}
}
