package web_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gorilla/sessions"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/migrations/testdb"
	"sluis/web"
)

// keeper is a session store with a clock and one user.
type keeper struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *web.Sessions
	now   time.Time
	user  web.User
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{t: t, pool: testdb.Pool(t), now: time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC)}
	k.store = web.NewSessions(k.pool, func() time.Time { return k.now }, true)
	var err error
	k.user, err = web.CreateUser(t.Context(), k.pool, web.NewUser{
		Name: "anna", Display: "Anna", Role: web.Planner, Password: "a long enough password", At: k.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// signIn starts a session from whatever the token names and returns its cookie.
func (k *keeper) signIn(token string) *http.Cookie {
	k.t.Helper()
	r := k.request(token)
	old, err := k.store.New(r, "__Host-sluis")
	if err != nil {
		k.t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if _, err := k.store.Renew(r, w, old, k.user); err != nil {
		k.t.Fatal(err)
	}
	return w.Result().Cookies()[0]
}

func (k *keeper) request(token string) *http.Request {
	r := httptest.NewRequestWithContext(k.t.Context(), http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "__Host-sluis", Value: token})
	return r
}

func (k *keeper) open(token string) *sessions.Session {
	k.t.Helper()
	s, err := k.store.New(k.request(token), "__Host-sluis")
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

func (k *keeper) seen() (seen, expires time.Time) {
	k.t.Helper()
	err := k.pool.QueryRow(k.t.Context(), `select seen_at, expires_at from sessions`).Scan(&seen, &expires)
	if err != nil {
		k.t.Fatal(err)
	}
	return seen.UTC(), expires.UTC()
}

func TestSessionCookieAndHash(t *testing.T) {
	k := newKeeper(t)
	c := k.signIn("")
	if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || len(c.Value) < 43 {
		t.Errorf("cookie %+v", c)
	}
	var hash []byte
	if err := k.pool.QueryRow(t.Context(), `select token_hash from sessions`).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	if len(hash) != 32 || bytes.Contains(hash, []byte(c.Value[:8])) {
		t.Errorf("stored as %q", hash)
	}
	if s := k.open(c.Value); s.IsNew {
		t.Error("the session is not found again")
	}
	if s := k.open(string(hash)); !s.IsNew {
		t.Error("the stored hash opens the session")
	}
}

func TestSessionIsRenewedAtSignIn(t *testing.T) {
	k := newKeeper(t)
	first := k.signIn("")
	second := k.signIn(first.Value)
	if first.Value == second.Value || !k.open(first.Value).IsNew || k.open(second.Value).IsNew {
		t.Error("signing in again keeps the old token")
	}
	planted := k.signIn("planted-by-somebody-else")
	if planted.Value == "planted-by-somebody-else" {
		t.Error("a planted token becomes a session")
	}
}

func TestSessionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		steps []time.Duration // each followed by a use
		alive bool
	}{
		"idle just below": {[]time.Duration{web.SessionIdle - time.Second}, true},
		"idle":            {[]time.Duration{web.SessionIdle}, false},
		"used all day":    {[]time.Duration{7 * time.Hour, 7 * time.Hour, 7 * time.Hour, 2 * time.Hour}, true},
		"absolute":        {[]time.Duration{7 * time.Hour, 7 * time.Hour, 7 * time.Hour, 3 * time.Hour}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t)
			token := k.signIn("").Value
			alive := true
			for _, d := range c.steps {
				k.now = k.now.Add(d)
				alive = !k.open(token).IsNew
			}
			if alive != c.alive {
				t.Errorf("alive %t", alive)
			}
			n, err := k.store.Purge(t.Context())
			if err != nil || (n == 1) == c.alive {
				t.Errorf("purged %d, %v", n, err)
			}
		})
	}
}

func TestSessionUseIsWrittenOnceAMinute(t *testing.T) {
	k := newKeeper(t)
	token, start := k.signIn("").Value, k.now
	k.now = start.Add(59 * time.Second)
	k.open(token)
	if seen, _ := k.seen(); !seen.Equal(start) {
		t.Errorf("written after 59 s: %v", seen)
	}
	k.now = start.Add(time.Minute)
	k.open(token)
	if seen, expires := k.seen(); !seen.Equal(k.now) || !expires.Equal(k.now.Add(web.SessionIdle)) {
		t.Errorf("after a minute: %v %v", seen, expires)
	}
}

func TestSessionIsRevoked(t *testing.T) {
	k := newKeeper(t)
	ctx := t.Context()
	revocations := map[string]func(pgx.Tx) error{
		"revoke":   func(tx pgx.Tx) error { return k.store.Revoke(ctx, tx, k.user.ID) },
		"role":     func(tx pgx.Tx) error { return web.SetRole(ctx, tx, k.user.ID, web.Viewer) },
		"password": func(tx pgx.Tx) error { return web.SetPassword(ctx, tx, k.user.ID, "another long password") },
		"disabled": func(tx pgx.Tx) error { return web.SetDisabled(ctx, tx, k.user.ID, &k.now) },
	}
	for _, name := range []string{"revoke", "role", "password", "disabled"} {
		token := k.signIn("").Value
		if err := pgx.BeginFunc(ctx, k.pool, revocations[name]); err != nil {
			t.Fatal(err)
		}
		alive, err := k.store.Alive(ctx, token)
		if err != nil || alive {
			t.Errorf("%s: alive %t, %v", name, alive, err)
		}
	}
}
