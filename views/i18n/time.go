package i18n

import (
	"context"
	"fmt"
	"time"
)

// Time writes the instant in the zone of ctx with date, seconds and offset:
// 2025-10-26 02:13:00 +01:00. The form is the same in each language and sorts.
// The zero time is an empty string.
func Time(ctx context.Context, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(Zone(ctx)).Format("2006-01-02 15:04:05 -07:00")
}

// Clock writes the instant without its date: 06:40:12 +01:00.
func Clock(ctx context.Context, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(Zone(ctx)).Format("15:04:05 -07:00")
}

// Stamp writes the instant for the datetime attribute of a time element:
// RFC 3339 in UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// agoUnits are the coarsest units that fit, in the order in which they are
// tried. The script of the console counts on with the same table.
var agoUnits = []struct {
	size time.Duration
	id   string
}{
	{24 * time.Hour, "time.ago_d"},
	{time.Hour, "time.ago_h"},
	{time.Minute, "time.ago_min"},
	{time.Second, "time.ago_s"},
}

// Ago writes how long before Now(ctx) the instant was: "2 min ago". An instant
// ahead of now reads "in 2 min". Without a now, or for the zero time, it is
// Time.
func Ago(ctx context.Context, t time.Time) string {
	now := Now(ctx)
	if t.IsZero() || now.IsZero() {
		return Time(ctx, t)
	}
	d := now.Sub(t)
	prefix := ""
	if d < 0 {
		d, prefix = -d, "in"
	}
	for _, u := range agoUnits {
		if d < u.size {
			continue
		}
		n := int(d / u.size)
		if prefix == "" {
			return T(ctx, u.id, "N", n)
		}
		return T(ctx, "time.in_"+u.id[len("time.ago_"):], "N", n)
	}
	return T(ctx, "time.ago_now")
}

// Duration writes d to the second as hours, minutes and seconds: 00:47:12.
func Duration(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	d = d.Truncate(time.Second)
	return fmt.Sprintf("%s%02d:%02d:%02d", sign, int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60)
}
