// Package i18n says what the console says, in English and Dutch.
//
// Messages live in locales/GROUP.LANG.json, one pair of files for each group of
// pages, and are all loaded by listing that folder: a new page adds its own
// pair and changes nothing else. A message is looked up through the language
// that Context has put into the context, so that a template writes
//
//	{ i18n.T(ctx, "nav.dashboard") }
//	{ i18n.N(ctx, "quarantine.new", n) }
//
// A time is always shown with its offset: the hour that is repeated in autumn
// has two instants for each wall-clock time, and only the offset tells them
// apart.
package i18n

import (
	"context"
	"embed"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/nicksnyder/go-i18n/v2/i18n"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	_ "time/tzdata" // the zone must exist on a machine without zone files
)

//go:embed locales/*.json
var locales embed.FS

// Languages lists the supported languages, the fallback first.
var Languages = []string{"en", "nl"}

// DefaultZone is the organisation's zone unless Context is given another.
const DefaultZone = "Europe/Amsterdam"

var bundle = sync.OnceValue(func() *i18n.Bundle {
	b := i18n.NewBundle(language.English)
	entries, err := locales.ReadDir("locales")
	if err != nil {
		panic(fmt.Sprintf("i18n: embedded messages cannot be listed: %v", err))
	}
	for _, e := range entries {
		if _, err := b.LoadMessageFileFS(locales, path.Join("locales", e.Name())); err != nil {
			panic(fmt.Sprintf("i18n: %s: %v", e.Name(), err))
		}
	}
	return b
})

var matcher = sync.OnceValue(func() language.Matcher {
	tags := make([]language.Tag, len(Languages))
	for i, l := range Languages {
		tags[i] = language.MustParse(l)
	}
	return language.NewMatcher(tags)
})

var defaultZone = sync.OnceValue(func() *time.Location {
	z, err := time.LoadLocation(DefaultZone)
	if err != nil {
		panic(fmt.Sprintf("i18n: zone %s: %v", DefaultZone, err))
	}
	return z
})

// Match returns the supported language for a person: the profile's when it is
// supported, else the best match for the Accept-Language header, else English.
func Match(profile, acceptLanguage string) string {
	for _, l := range Languages {
		if profile == l {
			return l
		}
	}
	tags, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil {
		return Languages[0]
	}
	_, i, _ := matcher().Match(tags...)
	return Languages[i]
}

type setting struct {
	lang      string
	zone      *time.Location
	now       time.Time
	localizer *i18n.Localizer
	printer   *message.Printer
}

type settingKey struct{}

// Context returns ctx with the language, the zone and the instant that the
// functions of this package use. An unsupported language means English, a nil
// zone means DefaultZone.
func Context(ctx context.Context, lang string, zone *time.Location, now time.Time) context.Context {
	lang = Match(lang, "")
	if zone == nil {
		zone = defaultZone()
	}
	return context.WithValue(ctx, settingKey{}, newSetting(lang, zone, now))
}

func newSetting(lang string, zone *time.Location, now time.Time) *setting {
	return &setting{
		lang: lang, zone: zone, now: now,
		localizer: i18n.NewLocalizer(bundle(), lang),
		printer:   message.NewPrinter(language.MustParse(lang)),
	}
}

func from(ctx context.Context) *setting {
	if s, ok := ctx.Value(settingKey{}).(*setting); ok {
		return s
	}
	return newSetting(Languages[0], defaultZone(), time.Time{})
}

// Lang returns the language of ctx ("en" or "nl").
func Lang(ctx context.Context) string { return from(ctx).lang }

// Now returns the instant that ctx was made for. It is zero without Context.
func Now(ctx context.Context) time.Time { return from(ctx).now }

// Zone returns the zone in which ctx shows times.
func Zone(ctx context.Context) *time.Location { return from(ctx).zone }

// T returns the message id in the language of ctx. kv are the names and values
// of its placeholders: T(ctx, "quarantine.by", "Name", name, "Count", 12).
// Integers and floats are written as the language writes numbers. An id that
// does not exist comes back in ⟦brackets⟧; a test keeps that from happening.
func T(ctx context.Context, id string, kv ...any) string {
	s := from(ctx)
	return s.localize(&i18n.LocalizeConfig{MessageID: id, TemplateData: s.data(kv)})
}

// N is T with a plural form chosen for n, which the message may show as
// {{.N}}.
func N(ctx context.Context, id string, n int, kv ...any) string {
	s := from(ctx)
	return s.localize(&i18n.LocalizeConfig{
		MessageID: id, PluralCount: n, TemplateData: s.data(append(kv[:len(kv):len(kv)], "N", n)),
	})
}

func (s *setting) localize(c *i18n.LocalizeConfig) string {
	text, err := s.localizer.Localize(c)
	if err != nil {
		return "⟦" + c.MessageID + "⟧"
	}
	return text
}

func (s *setting) data(kv []any) map[string]any {
	data := make(map[string]any, len(kv)/2)
	for i := 0; i+1 < len(kv); i += 2 {
		name, ok := kv[i].(string)
		if !ok {
			continue
		}
		data[name] = s.value(kv[i+1])
	}
	return data
}

func (s *setting) value(v any) any {
	switch v.(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return s.printer.Sprint(number.Decimal(v))
	}
	return v
}

// Number writes a whole number as the language of ctx does: 12,345 or 12.345.
func Number[T ~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64](ctx context.Context, n T) string {
	return from(ctx).printer.Sprint(number.Decimal(n))
}

// Decimal writes f with exactly digits decimals as the language of ctx does.
func Decimal(ctx context.Context, f float64, digits int) string {
	return from(ctx).printer.Sprint(number.Decimal(f, number.Scale(digits)))
}

// Percent writes the ratio f (0.021) with one decimal: 2.1 % or 2,1 %.
func Percent(ctx context.Context, f float64) string {
	return Decimal(ctx, f*100, 1) + " %"
}
