package handlers_test

import (
	"context"
	"net"
	"testing"

	"sluis/migrations/testdb"
	"sluis/web"
	"sluis/web/browsertest"
	"sluis/web/webtest"
)

// serve runs the console on a loopback port until the test ends and returns
// its address.
func serve(t *testing.T, console *webtest.Console) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- console.Server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func TestPlatformPagesInTheBrowser(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	console.User(t, web.Admin)
	console.User(t, web.Viewer)
	base := serve(t, console)
	b := browsertest.Browser(t)

	b.Axe(base + "/signin")
	b.Expect("401")
	b.Open(base + "/signin")
	b.Type("#name", "admin")
	b.Type("#password", "not the password")
	b.Click("button.primary")
	b.WaitText("#signin-error", "wrong")

	b.SignIn(base, "admin", webtest.Password)
	b.Axe(base + "/users")
	b.Axe(base + "/profile")
	b.Expect("404")
	b.Axe(base + "/nothing-here")
}

func TestKeysInTheBrowser(t *testing.T) {
	console := webtest.New(t, testdb.Pool(t), platformRoutes, nil)
	console.User(t, web.Admin)
	base := serve(t, console)
	b := browsertest.Browser(t)
	b.SignIn(base, "admin", webtest.Password)
	b.Open(base + "/users")

	b.Key("j")
	b.Wait("document.querySelector('[data-row].cursor')")
	b.Key("?")
	b.Wait("document.querySelector('#keys').open")
	b.Key("Escape")
	b.Wait("!document.querySelector('#keys').open")

	b.Click("form[action='/profile/language'] button")
	b.Wait("document.documentElement.lang === 'nl'")
	b.WaitText("h1", "Gebruikers")

	b.Click(".menu summary")
	b.Click("button[name=theme][value=dark]")
	b.Wait("document.documentElement.dataset.theme === 'dark'")

	b.Open(base + "/profile")
	b.Click("#keys-on")
	b.Click("form[action='/profile'] button")
	b.Wait("document.documentElement.dataset.keys === 'off'")
	b.Open(base + "/users")
	b.Key("j")
	b.Key("?")
	if browsertest.Eval[bool](b, "Boolean(document.querySelector('.cursor') || document.querySelector('#keys').open)") {
		t.Error("keys act although they are switched off")
	}

	b.Click(".menu summary")
	b.Click("form[action='/signout'] button")
	b.Wait("location.pathname === '/signin'")
}
