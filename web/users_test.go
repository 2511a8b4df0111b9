package web_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/migrations/testdb"
	"sluis/web"
)

func TestVerifyUser(t *testing.T) {
	k := newKeeper(t)
	ctx := t.Context()
	const password = "a long enough password"
	for name, c := range map[string]struct{ name, password string }{
		"wrong password": {"anna", "a long enough passwort"},
		"unknown":        {"bob", password},
		"empty":          {"", ""},
		"not a name":     {"anna\x00", password},
		"bad UTF-8":      {"\xff", password},
		"endless":        {"anna", strings.Repeat("x", 1<<16)},
		"decoy's own":    {"bob", "no such user"},
	} {
		if _, err := web.VerifyUser(ctx, k.pool, c.name, c.password); !errors.Is(err, web.ErrSignIn) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if u, err := web.VerifyUser(ctx, k.pool, " ANNA ", password); err != nil || u != k.user {
		t.Errorf("right: %+v %v", u, err)
	}
	other, err := web.CreateUser(ctx, k.pool, web.NewUser{Name: "root", Display: "R", Role: web.Admin, Password: password, At: k.now})
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error { return web.SetDisabled(ctx, tx, k.user.ID, &k.now) }); err != nil {
		t.Fatal(err)
	}
	if _, err := web.VerifyUser(ctx, k.pool, "anna", password); !errors.Is(err, web.ErrSignIn) {
		t.Errorf("disabled: %v", err)
	}
	var hash string
	if err := k.pool.QueryRow(ctx, `select password_hash from users where id = $1`, other.ID).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hash %s", hash)
	}
}

func TestTheLastAdministratorStays(t *testing.T) {
	pool := testdb.Pool(t)
	ctx := t.Context()
	now := time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC)
	var admins [2]web.User
	for i, name := range []string{"one", "two"} {
		u, err := web.CreateUser(ctx, pool, web.NewUser{Name: name, Display: name, Role: web.Admin, Password: "a long enough password", At: now})
		if err != nil {
			t.Fatal(err)
		}
		admins[i] = u
	}
	// Both at once: one of the two has to lose.
	errs := make(chan error, 2)
	for _, u := range admins {
		go func() {
			errs <- pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return web.SetRole(ctx, tx, u.ID, web.Viewer) })
		}()
	}
	lost := 0
	for range admins {
		if err := <-errs; errors.Is(err, web.ErrLastAdmin) {
			lost++
		} else if err != nil {
			t.Error(err)
		}
	}
	if lost != 1 {
		t.Errorf("%d of 2 were refused", lost)
	}
}

func TestAuditFailureUndoesTheChange(t *testing.T) {
	pool := testdb.Pool(t)
	failing := errors.New("no record")
	accounts := web.NewAccounts(pool, time.Now().UTC, func(context.Context, web.Tx, web.AccountEntry) error { return failing })
	_, err := accounts.Create(t.Context(), web.User{}, web.NewUser{Name: "x", Display: "X", Role: web.Viewer, Password: "a long enough password"})
	if !errors.Is(err, failing) {
		t.Fatal(err)
	}
	users, err := accounts.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(users) != 0 {
		t.Errorf("users without a record: %+v", users)
	}
}
