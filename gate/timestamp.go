package gate

import (
	"strings"
	"time"
)

// TimestampError says why a time cannot be used, with the reason under which
// the event is held, and what its sender should do.
type TimestampError struct {
	Reason Reason // malformed_timestamp, no_offset, leap_second or unsupported_timestamp
	Msg    string
}

func (e *TimestampError) Error() string { return string(e.Reason) + ": " + e.Msg }

// Is makes every TimestampError an ErrMalformed.
func (e *TimestampError) Is(target error) bool { return target == ErrMalformed }

// ParseTimestamp reads an RFC 3339 date-time with an explicit offset and
// returns the instant in UTC, to the nanosecond. The grammar is our own,
// because time.Parse accepts what is none of it ("T1:02:03Z", ",5Z",
// "+02:60"). T and Z are upper case. Held with a reason of their own, though
// some are RFC 3339: no offset at all (in the night of incident 1 that names
// two instants); a leap second; and as unsupported -00:00, an offset beyond
// ±14:00, more than nine fraction digits (two versions must not become one
// instant), a bracketed zone (RFC 9557), and a year outside 0000 to 9999 in UTC.
//
// Errors are *TimestampError.
func ParseTimestamp(s string) (time.Time, error) {
	var t stamp
	rest, err := t.dateTime(s)
	if err != nil {
		return time.Time{}, err
	}
	rest, err = t.zone(rest)
	if err != nil {
		return time.Time{}, err
	}
	if rest != "" {
		if rest[0] == '[' && strings.IndexByte(rest, ']') == len(rest)-1 {
			return time.Time{}, unsupported("send the time without a zone in brackets; the offset says it all")
		}
		return time.Time{}, malformed("send nothing after the offset")
	}
	return t.instant()
}

// stamp is a timestamp while it is being read.
type stamp struct {
	year, month, day     int
	hour, minute, second int
	nanos                int
	fraction             int // digits
	offset               int // seconds east of UTC
	unknownOffset        bool
}

// dateTime reads full-date "T" partial-time and returns what follows.
func (t *stamp) dateTime(s string) (string, error) {
	shape := malformed("write the time as 2006-01-02T15:04:05+02:00")
	fields := []struct {
		to       *int
		width    int
		min, max int
		before   byte
	}{
		{&t.year, 4, 0, 9999, 0}, {&t.month, 2, 1, 12, '-'}, {&t.day, 2, 1, 31, '-'},
		{&t.hour, 2, 0, 23, 'T'}, {&t.minute, 2, 0, 59, ':'}, {&t.second, 2, 0, 60, ':'},
	}
	for _, f := range fields {
		var ok bool
		if f.before != 0 {
			if s, ok = cutByte(s, f.before); !ok {
				return s, shape
			}
		}
		if *f.to, s, ok = cutDigits(s, f.width); !ok {
			return s, shape
		}
		if *f.to < f.min || *f.to > f.max {
			return s, malformed("send a date and time that exist")
		}
	}
	if t.day > daysIn(t.year, t.month) {
		return s, malformed("send a date that exists")
	}
	if s, ok := cutByte(s, '.'); ok {
		return t.secfrac(s)
	}
	return s, nil
}

// secfrac reads the digits after the point.
func (t *stamp) secfrac(s string) (string, error) {
	for t.fraction < len(s) && isDigit(s[t.fraction]) {
		if t.fraction < 9 {
			t.nanos = t.nanos*10 + int(s[t.fraction]-'0')
		}
		t.fraction++
	}
	if t.fraction == 0 {
		return s, malformed("write digits after the decimal point")
	}
	for i := t.fraction; i < 9; i++ {
		t.nanos *= 10
	}
	return s[t.fraction:], nil
}

// zone reads the offset and returns what follows.
func (t *stamp) zone(s string) (string, error) {
	if s == "" || s[0] == '[' {
		return s, &TimestampError{ReasonNoOffset, "send the offset, such as Z or +02:00: without it the time names no instant"}
	}
	if rest, ok := cutByte(s, 'Z'); ok {
		return rest, nil
	}
	sign := 1
	rest, ok := cutByte(s, '+')
	if !ok {
		sign = -1
		if rest, ok = cutByte(s, '-'); !ok {
			return s, malformed("write Z or an offset such as +02:00 after the time")
		}
	}
	shape := malformed("write the offset as +02:00")
	hours, rest, ok := cutDigits(rest, 2)
	if !ok {
		return rest, shape
	}
	if rest, ok = cutByte(rest, ':'); !ok {
		return rest, shape
	}
	minutes, rest, ok := cutDigits(rest, 2)
	if !ok || hours > 23 || minutes > 59 {
		return rest, shape
	}
	t.offset = sign * (hours*60 + minutes) * 60
	t.unknownOffset = sign < 0 && t.offset == 0
	return rest, nil
}

// instant judges the whole, once its grammar is known to be good.
func (t *stamp) instant() (time.Time, error) {
	leap := t.second == 60
	second := min(t.second, 59)
	at := time.Date(t.year, time.Month(t.month), t.day, t.hour, t.minute, second, t.nanos, time.UTC)
	at = at.Add(-time.Duration(t.offset) * time.Second)
	const limit = 14 * 60 * 60
	switch {
	case leap && !endsMonth(at):
		return time.Time{}, malformed("send a second between 00 and 59")
	case leap:
		return time.Time{}, &TimestampError{ReasonLeapSecond, "send the time without a leap second"}
	case t.unknownOffset:
		return time.Time{}, unsupported("send Z or the real offset; -00:00 says that it is not known")
	case t.offset > limit || t.offset < -limit:
		return time.Time{}, unsupported("send an offset between -14:00 and +14:00; no place has another")
	case t.fraction > 9:
		return time.Time{}, unsupported("send at most nine digits of a second")
	case at.Year() < 0 || at.Year() > 9999:
		return time.Time{}, unsupported("send a time whose year in UTC has four digits")
	}
	return at, nil
}

// endsMonth reports whether at is in the last second of a month, the only
// place of a leap second (ITU-R TF.460-6, RFC 3339 section 5.7).
func endsMonth(at time.Time) bool {
	return at.Hour() == 23 && at.Minute() == 59 && at.Second() == 59 && at.AddDate(0, 0, 1).Day() == 1
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func cutByte(s string, c byte) (rest string, ok bool) {
	if s == "" || s[0] != c {
		return s, false
	}
	return s[1:], true
}

func cutDigits(s string, width int) (n int, rest string, ok bool) {
	if len(s) < width {
		return 0, s, false
	}
	for i := range width {
		if !isDigit(s[i]) {
			return 0, s, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, s[width:], true
}

func malformed(msg string) error   { return &TimestampError{ReasonMalformedTimestamp, msg} }
func unsupported(msg string) error { return &TimestampError{ReasonUnsupportedTimestamp, msg} }
