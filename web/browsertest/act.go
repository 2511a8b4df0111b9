package browsertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// Ctx is the tab's context, for actions of chromedp that have no method here.
func (b *B) Ctx() context.Context { return b.ctx }

// Do runs actions of chromedp and fails the test when one fails.
func (b *B) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("browser: %v", err)
	}
}

// Open goes to the URL and waits until it has loaded.
func (b *B) Open(url string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(url))
}

// Click clicks the first element that the CSS selector finds, as a person
// would.
func (b *B) Click(selector string) {
	b.t.Helper()
	b.Do(chromedp.Click(chromedp.CSS(selector)))
}

// Type writes text into a field.
func (b *B) Type(selector, text string) {
	b.t.Helper()
	b.Do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Eval returns the value of a JavaScript expression in the page.
func Eval[T any](b *B, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("browser: %s: %v", expression, err)
	}
	return v
}

// Wait waits until the JavaScript expression is true, across page loads.
func (b *B) Wait(expression string) {
	b.t.Helper()
	for {
		_, err := chromedp.Run(b.ctx, chromedp.Poll[bool]("Boolean("+expression+")"))
		if err == nil {
			return
		}
		if b.ctx.Err() != nil || strings.Contains(err.Error(), "SyntaxError") || strings.Contains(err.Error(), "timeout") {
			b.t.Fatalf("browser: wait for %s: %v", expression, err)
		}
	}
}

// Text returns the text of the first element that the CSS selector finds, with
// single spaces. It reads through the page, so a live swap cannot make it fail.
func (b *B) Text(selector string) string {
	b.t.Helper()
	text := Eval[string](b, "document.querySelector("+quote(selector)+")?.textContent ?? ''")
	return strings.Join(strings.Fields(text), " ")
}

// WaitText waits until the element's text contains part.
func (b *B) WaitText(selector, part string) {
	b.t.Helper()
	b.Wait("document.querySelector(" + quote(selector) + ")?.textContent.includes(" + quote(part) + ")")
}

// named are the keys that carry no text, with their virtual key codes.
var named = map[string]int64{"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9}

// Key presses one key: a character, or Enter, Escape, Tab, ArrowUp, ArrowDown,
// with "Ctrl+" or "Shift+" before it. It is one key-down that carries its text,
// so that a page that prevents the default also prevents the character.
func (b *B) Key(key string) {
	b.t.Helper()
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown}
	for prefix, modifier := range map[string]chromedp.Modifier{"Ctrl+": chromedp.ModifierCtrl, "Shift+": chromedp.ModifierShift} {
		if rest, ok := strings.CutPrefix(key, prefix); ok && rest != "" {
			key, down.Modifiers = rest, int64(modifier)
		}
	}
	down.Key = key
	switch code, ok := named[key]; {
	case ok:
		down.WindowsVirtualKeyCode, down.Code = code, key
		if key == "Enter" {
			down.Text = "\r"
		}
	case down.Modifiers != int64(chromedp.ModifierCtrl):
		down.Text = key
	}
	up := down
	up.Type, up.Text = input.DispatchKeyEventTypeKeyUp, ""
	b.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, down); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, input.DispatchKeyEvent, up)
		return err
	}))
}

// Viewport sets the size of the page in CSS pixels.
func (b *B) Viewport(width, height int64) {
	b.t.Helper()
	b.Do(chromedp.EmulateViewport(width, height))
}

// Scheme sets the preferred colour scheme: "light" or "dark".
func (b *B) Scheme(scheme string) {
	b.t.Helper()
	b.media(emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// Print shows the page as it prints.
func (b *B) Print() {
	b.t.Helper()
	b.media(emulation.SetEmulatedMediaParams{Media: "print"})
}

func (b *B) media(p emulation.SetEmulatedMediaParams) {
	b.t.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, p)
		return err
	}))
}

// Screenshot saves the whole page as a PNG; the folder is made when missing.
func (b *B) Screenshot(path string) {
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatalf("screenshot: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatalf("screenshot: %v", err)
	}
	if err := os.WriteFile(path, image, 0o644); err != nil {
		b.t.Fatalf("screenshot: %v", err)
	}
}

// SignIn signs in through the sign-in page of the console at base and waits for
// the page that follows.
func (b *B) SignIn(base, name, password string) {
	b.t.Helper()
	b.Open(base + "/signin")
	b.Type("#name", name)
	b.Type("#password", password)
	b.Click("form[action='/signin'] button[type=submit]")
	b.Wait("location.pathname !== '/signin' && document.readyState === 'complete'")
}
