package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/chromedp/chromedp"
)

// widths are the two at which pages are checked: a desk, and the 320 CSS pixels
// of WCAG 2.2, 1.4.10 (reflow).
var widths = []int64{1280, 320}

const narrow = 320

// axeScript reads axe-core once.
var axeScript = sync.OnceValues(func() (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile(filepath.Join(dir, "web", "browsertest", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("axe-core is missing, run make test, which installs it: %w", err)
	}
	return string(script), nil
})

type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML   string `json:"html"`
		Target []any  `json:"target"`
		Reason string `json:"failureSummary"`
	} `json:"nodes"`
}

// Axe opens the page at 1280 and 320 pixels, light and dark, and fails the test
// for whatever axe-core finds, and for a page that scrolls sideways at 320.
func (b *B) Axe(url string) {
	b.t.Helper()
	if _, err := axeScript(); err != nil {
		absent(b.t, err)
	}
	for _, width := range widths {
		for _, scheme := range []string{"light", "dark"} {
			b.Viewport(width, 900)
			b.Scheme(scheme)
			b.Open(url)
			b.AxeHere(fmt.Sprintf("%s at %d %s", url, width, scheme))
			if width == narrow {
				b.NoOverflow()
			}
		}
	}
}

// AxeHere checks the page as it stands; label names it in failures.
func (b *B) AxeHere(label string) {
	b.t.Helper()
	script, err := axeScript()
	if err != nil {
		absent(b.t, err)
	}
	b.Do(chromedp.Evaluate[chromedp.Void](script + "\n;undefined"))
	found := Eval[string](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => JSON.stringify(r.violations))`)
	var violations []violation
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatalf("axe: %v", err)
	}
	for _, v := range violations {
		for _, n := range v.Nodes {
			b.t.Errorf("axe: %s: %s: %s\n%s\n%s", label, v.ID, v.Help, n.HTML, n.Reason)
		}
	}
}

// NoOverflow fails the test when the page is wider than its window, and names
// the widest elements that stick out.
func (b *B) NoOverflow() {
	b.t.Helper()
	if over := Eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		out := Eval[[]string](b, `[...document.querySelectorAll('body *')]
			.filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
			.slice(0, 5).map((e) => e.outerHTML.slice(0, 120))`)
		b.t.Errorf("page is %d pixels wider than its window:\n%s", over, strings.Join(out, "\n"))
	}
}

func quote(s string) string { return strconv.Quote(s) }
