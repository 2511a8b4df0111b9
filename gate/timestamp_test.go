package gate_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sluis/gate"
)

func timestampReason(t *testing.T, s string) gate.Reason {
	t.Helper()
	_, err := gate.ParseTimestamp(s)
	if err == nil {
		return ""
	}
	var refused *gate.TimestampError
	if !errors.As(err, &refused) || !errors.Is(err, gate.ErrMalformed) || refused.Msg == "" {
		t.Fatalf("%q: error %#v", s, err)
	}
	return refused.Reason
}

func TestTimestampReasons(t *testing.T) {
	for _, test := range []struct {
		text string
		want gate.Reason
	}{
		{"2025-10-26T02:47:00+02:00", ""},
		{"2025-10-26T02:13:00+01:00", ""},
		{"2026-07-01T12:00:00+14:00", ""},
		{"2026-07-01T12:00:00-14:00", ""},
		{"2026-07-01T12:00:00.123456789Z", ""},
		{"2026-10-25T02:30:00", gate.ReasonNoOffset},
		{"2025-10-20T21:33:51.999511", gate.ReasonNoOffset},
		{"2026-07-01T12:00:00[Europe/Amsterdam]", gate.ReasonNoOffset},
		{"2016-12-31T23:59:60", gate.ReasonNoOffset},
		{"2016-12-31T23:59:60Z", gate.ReasonLeapSecond},
		{"2016-12-31T23:59:60.5Z", gate.ReasonLeapSecond},
		{"2017-01-01T00:59:60+01:00", gate.ReasonLeapSecond},
		{"1990-12-31T15:59:60-08:00", gate.ReasonLeapSecond},
		{"2026-06-30T23:59:60Z", gate.ReasonLeapSecond},
		{"2026-07-01T12:00:60Z", gate.ReasonMalformedTimestamp},
		{"2026-07-01T23:59:60Z", gate.ReasonMalformedTimestamp},
		{"2016-12-31T23:59:60+01:00", gate.ReasonMalformedTimestamp},
		{"2016-12-31T23:59:61Z", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00:00-00:00", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00+14:01", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00-14:01", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00+23:59", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00.1234567890Z", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00+02:00[Europe/Amsterdam]", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00Z[u-ca=iso8601]", gate.ReasonUnsupportedTimestamp},
		{"0000-01-01T00:00:00+01:00", gate.ReasonUnsupportedTimestamp},
		{"9999-12-31T23:59:59-01:00", gate.ReasonUnsupportedTimestamp},
		{"2026-07-01T12:00:00Z[", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00:00Z]", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00:00Z[a]b", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00:00+24:00", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00:00+02:60", gate.ReasonMalformedTimestamp},
		{"2026-07-01t12:00:00Z", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00:00z", gate.ReasonMalformedTimestamp},
		{"2026-07-01 12:00:00Z", gate.ReasonMalformedTimestamp},
		{"2026-07-01", gate.ReasonMalformedTimestamp},
		{"2026-07-01T12:00", gate.ReasonMalformedTimestamp},
		{"2026-00-01T12:00:00Z", gate.ReasonMalformedTimestamp},
		{"2026-07-00T12:00:00Z", gate.ReasonMalformedTimestamp},
		{"", gate.ReasonMalformedTimestamp},
	} {
		if got := timestampReason(t, test.text); got != test.want {
			t.Errorf("%q: reason %q, want %q", test.text, got, test.want)
		}
	}
}

func TestTimestampsTorture(t *testing.T) {
	type row struct {
		Text, Gate, Why string
		RFC3339         bool
		UTC             *string
	}
	jsonLines(t, testdata(t, "timestamps.jsonl"), func(r row) {
		got, err := gate.ParseTimestamp(r.Text)
		why := timestampReason(t, r.Text)
		switch {
		case r.Text == "9999-12-31T23:59:59Z" || strings.HasPrefix(r.Text, "0000"):
			// Good text; what holds it is the skew.
			if err != nil {
				t.Errorf("%q: %v", r.Text, err)
			}
		case r.Gate == "accept":
			if err != nil || got.Format(time.RFC3339Nano) != *r.UTC || got.Location() != time.UTC {
				t.Errorf("%q: %v, %v, want %s (%s)", r.Text, got, err, *r.UTC, r.Why)
			}
		case err == nil:
			t.Errorf("%q: accepted (%s)", r.Text, r.Why)
		case r.Gate == "quarantine" && why != gate.ReasonMalformedTimestamp && why != gate.ReasonNoOffset:
			t.Errorf("%q: reason %s (%s)", r.Text, why, r.Why)
		}
	})
}

// The repeated hour of incident 1: 26 minutes apart, though the clock reads
// earlier.
func TestTheRepeatedHourIsTwoInstants(t *testing.T) {
	first, err1 := gate.ParseTimestamp("2025-10-26T02:47:00+02:00")
	second, err2 := gate.ParseTimestamp("2025-10-26T02:13:00+01:00")
	if err1 != nil || err2 != nil || second.Sub(first) != 26*time.Minute {
		t.Errorf("%v and %v, %v, %v", first, second, err1, err2)
	}
}

func TestTimestampsOfJSONSchema(t *testing.T) {
	var groups []struct {
		Tests []struct {
			Description string
			Data        any
			Valid       bool
		}
	}
	if err := json.Unmarshal(material(t, "timestamps", "json-schema-date-time.json"), &groups); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		for _, test := range group.Tests {
			text, ok := test.Data.(string)
			if !ok {
				continue
			}
			got := timestampReason(t, text)
			narrower := got == gate.ReasonLeapSecond || got == gate.ReasonUnsupportedTimestamp || text != strings.ToUpper(text)
			if (got == "") != test.Valid && !(test.Valid && narrower) {
				t.Errorf("%s: %q: reason %q", test.Description, text, got)
			}
		}
	}
}

func TestTimestampsOfZoneTransitions(t *testing.T) {
	var rows []struct {
		InstantUTC string `json:"instant_utc"`
		FirstAfter string `json:"first_after"`
		LastBefore string `json:"last_before"`
		WallFrom   string `json:"wall_from"`
	}
	if err := json.Unmarshal(material(t, "timestamps", "tz-transitions-2025-2027.json"), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		at, err := gate.ParseTimestamp(row.InstantUTC)
		after, err2 := gate.ParseTimestamp(row.FirstAfter)
		before, err3 := gate.ParseTimestamp(row.LastBefore)
		if err := errors.Join(err, err2, err3); err != nil || !after.Equal(at) || at.Sub(before) != time.Second {
			t.Errorf("%+v: %v, %v, %v, %v", row, at, after, before, err)
		}
		if got := timestampReason(t, row.WallFrom); row.WallFrom != "" && got != gate.ReasonNoOffset {
			t.Errorf("%q: reason %q", row.WallFrom, got)
		}
	}
}

// What TOML calls invalid and the gate would accept must not exist, but for
// the lines that are about TOML itself.
func TestTimestampsOfTOML(t *testing.T) {
	type row struct {
		Path, Text string
		Valid      bool
	}
	jsonLines(t, material(t, "timestamps", "toml-test-datetime.jsonl"), func(r row) {
		if r.Valid {
			return
		}
		for line := range strings.Lines(r.Text) {
			_, value, ok := strings.Cut(line, "= ")
			if !ok || strings.HasPrefix(line, "#") {
				continue
			}
			if got := timestampReason(t, strings.TrimRight(value, "\n")); got == "" {
				t.Errorf("%s: %q accepted", r.Path, value)
			}
		}
	})
}

func FuzzTimestamp(f *testing.F) {
	for _, seed := range []string{"2025-10-26T02:47:00+02:00", "2016-12-31T23:59:60.5Z", "2026-07-01T12:00:00-00:00", "2026-02-29T24:60:61Z[x]", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := gate.ParseTimestamp(s)
		if err != nil {
			timestampReason(t, s)
			return
		}
		lax, err := time.Parse(time.RFC3339Nano, s)
		if err != nil || !lax.Equal(got) {
			t.Errorf("%q: %v, and Go reads %v, %v", s, got, lax, err)
		}
		if again, err := gate.ParseTimestamp(got.Format(time.RFC3339Nano)); err != nil || !again.Equal(got) {
			t.Errorf("%q: %v, again %v, %v", s, got, again, err)
		}
	})
}
