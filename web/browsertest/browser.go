// Package browsertest drives a real browser in tests: one headless Chromium for
// a test binary, a browser context of its own (cookies, storage) for each test.
//
// Whatever the page writes to the console, throws, or is refused by the
// content security policy fails the test at its end, unless it was expected.
// A TestMain has to call Wrap, which closes the browser:
//
//	func TestMain(m *testing.M) { os.Exit(browsertest.Wrap(m).Run()) }
//
// Without Chromium a test is skipped, and fails when the environment says
// CI=true. So does an accessibility check without axe-core, which `npm ci` in
// this folder installs.
package browsertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// deadline bounds one test's use of the browser.
const deadline = 2 * time.Minute

// programs are the browsers that are looked for, in this order.
var programs = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}

// shared is the one browser of this test binary.
var shared struct {
	mu      sync.Mutex
	ctx     context.Context
	stop    func()
	profile string
	err     error
}

// Runner is what runs the tests: *testing.M or a wrapping of it.
type Runner interface{ Run() int }

type wrapped struct{ inner Runner }

// Wrap returns a Runner that closes the browser after the tests.
func Wrap(m Runner) Runner { return wrapped{m} }

func (w wrapped) Run() int {
	defer closeShared()
	return w.inner.Run()
}

func closeShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.stop == nil {
		return
	}
	shared.stop()
	shared.stop = nil
	if err := os.RemoveAll(shared.profile); err != nil {
		fmt.Fprintln(os.Stderr, "browsertest:", err)
	}
}

var errNoBrowser = errors.New("no Chromium found: apt-get install chromium-headless-shell")

// start starts the browser once, without a deadline: the context of its first
// use would otherwise end it.
func start() (context.Context, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ctx != nil || shared.err != nil {
		return shared.ctx, shared.err
	}
	program, err := find()
	if err != nil {
		shared.err = err
		return nil, err
	}
	profile, err := os.MkdirTemp("", "sluis-browser-")
	if err != nil {
		return nil, fmt.Errorf("browser profile: %w", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(allocator)
	shared.profile, shared.stop = profile, func() { stopBrowser(); stopAllocator() }
	if err := chromedp.Do(ctx); err != nil {
		shared.err = fmt.Errorf("start %s: %w", program, err)
		return nil, shared.err
	}
	shared.ctx = ctx
	return ctx, nil
}

func find() (string, error) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBrowser
}

// absent skips the test for want of material, or fails it under CI=true.
func absent(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// B is one tab in a browser context of its own.
type B struct {
	t        testing.TB
	ctx      context.Context
	mu       sync.Mutex
	messages []chromedp.ConsoleMessage
	expected []string
}

// Browser opens a tab for the test. At the end of the test the page is left,
// so that its event streams close, and its console is judged. Start the server
// first: what a test starts last is stopped first, and a page whose server is
// gone complains.
func Browser(t testing.TB) *B {
	t.Helper()
	browser, err := start()
	if errors.Is(err, errNoBrowser) {
		absent(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	tab, cancelTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(tab, deadline)
	b := &B{t: t, ctx: ctx}
	if err := chromedp.Do(tab); err != nil {
		cancel()
		cancelTab()
		t.Fatalf("open tab: %v", err)
	}
	done := b.listen(tab)
	t.Cleanup(func() {
		b.leave()
		cancel()
		cancelTab()
		<-done
		b.judge()
	})
	return b
}

// listen collects the console until the tab closes.
func (b *B) listen(tab context.Context) <-chan struct{} {
	messages := chromedp.Console(tab)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.messages = append(b.messages, m)
			b.mu.Unlock()
		}
	}()
	return done
}

func (b *B) leave() {
	if err := chromedp.Do(b.ctx, chromedp.Navigate("about:blank")); err != nil && b.ctx.Err() == nil {
		b.t.Errorf("leave page: %v", err)
	}
}

// Expect names a part of a console message that this test brings about, such as
// the status of an error page.
func (b *B) Expect(part string) { b.expected = append(b.expected, part) }

// judge fails the test for each message that says something is wrong.
func (b *B) judge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if b.isExpected(m) {
			continue
		}
		wrong := m.Source == "security" || m.IsException() ||
			m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning
		if wrong {
			b.t.Errorf("console: %s %s: %s (%s:%d)", m.Source, m.Type, m.Text, m.URL, m.Line+1)
		}
	}
}

func (b *B) isExpected(m chromedp.ConsoleMessage) bool {
	for _, part := range b.expected {
		if strings.Contains(m.Text, part) {
			return true
		}
	}
	return false
}

// root is the root of the repository: the nearest folder above with a go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("repository root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("repository root: no go.mod above")
		}
		dir = parent
	}
}
