package i18n_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluis/views/i18n"
)

func at(t *testing.T, lang string, now time.Time) context.Context {
	t.Helper()
	return i18n.Context(t.Context(), lang, nil, now)
}

func TestMatch(t *testing.T) {
	for _, c := range []struct{ profile, accept, want string }{
		{"nl", "en", "nl"},
		{"", "nl-BE,nl;q=0.9,en;q=0.5", "nl"},
		{"", "de,en;q=0.8", "en"},
		{"", "", "en"},
		{"fr", "nl", "nl"},
		{"", "\x00;;q=", "en"},
	} {
		if got := i18n.Match(c.profile, c.accept); got != c.want {
			t.Errorf("Match(%q, %q) = %q, want %q", c.profile, c.accept, got, c.want)
		}
	}
}

// The hour that is repeated in autumn shows each wall-clock time twice.
func TestTimeTellsTheRepeatedHourApart(t *testing.T) {
	ctx := at(t, "nl", time.Time{})
	first := time.Date(2025, 10, 26, 0, 47, 0, 0, time.UTC)
	if got := i18n.Time(ctx, first); got != "2025-10-26 02:47:00 +02:00" {
		t.Errorf("first = %s", got)
	}
	if got := i18n.Time(ctx, first.Add(time.Hour)); got != "2025-10-26 02:47:00 +01:00" {
		t.Errorf("second = %s", got)
	}
	if got := i18n.Clock(ctx, first); got != "02:47:00 +02:00" {
		t.Errorf("clock = %s", got)
	}
	if got := i18n.Time(ctx, time.Time{}); got != "" {
		t.Errorf("zero = %q", got)
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2025, 10, 26, 5, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		d      time.Duration
		en, nl string
	}{
		{500 * time.Millisecond, "just now", "zojuist"},
		{12 * time.Second, "12 s ago", "12 s geleden"},
		{119 * time.Second, "1 min ago", "1 min geleden"},
		{3 * time.Hour, "3 h ago", "3 u geleden"},
		{50 * time.Hour, "2 d ago", "2 d geleden"},
		{-2 * time.Minute, "in 2 min", "over 2 min"},
	} {
		if got := i18n.Ago(at(t, "en", now), now.Add(-c.d)); got != c.en {
			t.Errorf("%v = %q, want %q", c.d, got, c.en)
		}
		if got := i18n.Ago(at(t, "nl", now), now.Add(-c.d)); got != c.nl {
			t.Errorf("%v = %q, want %q", c.d, got, c.nl)
		}
	}
}

func TestNumbers(t *testing.T) {
	en, nl := at(t, "en", time.Time{}), at(t, "nl", time.Time{})
	if e, n := i18n.Number(en, 12345), i18n.Number(nl, 12345); e != "12,345" || n != "12.345" {
		t.Errorf("numbers %q %q", e, n)
	}
	if e, n := i18n.Percent(en, 0.0214), i18n.Percent(nl, 0.0214); e != "2.1 %" || n != "2,1 %" {
		t.Errorf("percents %q %q", e, n)
	}
	if got := i18n.T(nl, "time.ago_d", "N", 1500); got != "1.500 d geleden" {
		t.Errorf("placeholder %q", got)
	}
	if got := i18n.Duration(47*time.Minute + 12*time.Second + 900*time.Millisecond); got != "00:47:12" {
		t.Errorf("duration %q", got)
	}
	if got := i18n.T(en, "no.such.id"); got != "⟦no.such.id⟧" {
		t.Errorf("missing id %q", got)
	}
}

// ids reads the message ids of one language, by file group.
func ids(t *testing.T, lang string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("locales", "*."+lang+".json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files for %s: %v", lang, err)
	}
	found := map[string]bool{}
	for _, file := range files {
		group := strings.TrimSuffix(filepath.Base(file), "."+lang+".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var messages map[string]any
		if err := json.Unmarshal(text, &messages); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for id, message := range messages {
			if found[id] {
				t.Errorf("%s.%s: %s is in two files", group, lang, id)
			}
			if text, ok := message.(string); ok && text == "" {
				t.Errorf("%s.%s: %s is empty", group, lang, id)
			}
			found[id] = true
		}
	}
	return found
}

func TestLanguagesHoldTheSameIDs(t *testing.T) {
	en, nl := ids(t, "en"), ids(t, "nl")
	for id := range en {
		if !nl[id] {
			t.Errorf("nl lacks %s", id)
		}
	}
	for id := range nl {
		if !en[id] {
			t.Errorf("en lacks %s", id)
		}
	}
}

var (
	literal = regexp.MustCompile(`"([a-z][a-z0-9_]*\.[a-z0-9_.]*)"`)
	call    = regexp.MustCompile(`(?:i18n\.[TN]|\.T)\((?:ctx, |c\.Ctx\(\), )?"([^"]+)"([^)]?)`)
)

// sources returns the text of every template and Go file outside tests and
// generated code, by path.
func sources(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	texts := map[string]string{}
	for _, folder := range []string{"cmd", "handlers", "views", "web"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name := d.Name()
			if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_templ.go") ||
				!strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".templ") {
				return nil
			}
			text, err := os.ReadFile(path)
			texts[path] = string(text)
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return texts
}

// A literal that ends in a dot or an underscore is the start of ids that are
// completed at run time; it stands for each id that begins with it.
func prefix(s string) bool { return strings.HasSuffix(s, ".") || strings.HasSuffix(s, "_") }

func TestEveryUsedIDExistsAndEveryIDIsUsed(t *testing.T) {
	known := ids(t, "en")
	used := map[string]bool{}
	for path, text := range sources(t) {
		for _, m := range call.FindAllStringSubmatch(text, -1) {
			id := m[1]
			if prefix(id) || known[id] {
				continue
			}
			t.Errorf("%s uses %s, which no file holds", path, id)
		}
		for _, m := range literal.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
	}
	prefixes := slices.DeleteFunc(slices.Collect(maps.Keys(used)), func(s string) bool { return !prefix(s) })
	for id := range known {
		if used[id] || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(id, p) }) {
			continue
		}
		t.Errorf("nothing uses %s", id)
	}
}
