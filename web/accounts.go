package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AccountEntry is a change of users or a sign-in, as the audit record keeps it.
// Action is "noun.verb": user.created, user.role, user.disabled, user.enabled,
// user.password, user.signed_in, user.signed_out, user.sign_in_failed.
type AccountEntry struct {
	At     time.Time
	Actor  User // zero when nobody is signed in
	Action string
	Object string // "user/anna"
	Detail map[string]string
}

// TxDB is a pool that begins transactions.
type TxDB interface {
	DB
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Accounts runs each change of users in one transaction with its audit record:
// no record, no change.
type Accounts struct {
	db    TxDB
	now   func() time.Time
	audit func(ctx context.Context, tx pgx.Tx, e AccountEntry) error
}

// NewAccounts returns Accounts over db. audit appends the record in tx.
func NewAccounts(db TxDB, now func() time.Time, audit func(ctx context.Context, tx pgx.Tx, e AccountEntry) error) *Accounts {
	return &Accounts{db: db, now: now, audit: audit}
}

// SignIn verifies name and password and records the outcome. A failure is
// ErrSignIn, recorded as user.sign_in_failed with the address.
func (a *Accounts) SignIn(ctx context.Context, name, password, address string) (User, error) {
	u, verifyErr := VerifyUser(ctx, a.db, name, password)
	e := AccountEntry{Actor: u, Action: "user.signed_in", Object: object(u), Detail: map[string]string{"address": address}}
	switch {
	case errors.Is(verifyErr, ErrSignIn):
		e.Action, e.Object = "user.sign_in_failed", object(User{Name: recordedName(name)})
	case verifyErr != nil:
		return User{}, verifyErr
	}
	if err := a.record(ctx, e); err != nil {
		return User{}, err
	}
	return u, verifyErr
}

// SignedOut records that the user signed out.
func (a *Accounts) SignedOut(ctx context.Context, u User) error {
	return a.record(ctx, AccountEntry{Actor: u, Action: "user.signed_out", Object: object(u)})
}

// List returns all users.
func (a *Accounts) List(ctx context.Context) ([]User, error) { return ListUsers(ctx, a.db) }

// Create is CreateUser with its record.
func (a *Accounts) Create(ctx context.Context, actor User, n NewUser) (User, error) {
	var u User
	n.At = a.now()
	e := AccountEntry{Actor: actor, Action: "user.created", Object: object(User{Name: NormalName(n.Name)}),
		Detail: map[string]string{"role": string(n.Role), "display": n.Display}}
	err := a.change(ctx, &e, func(tx pgx.Tx) error {
		var err error
		u, err = CreateUser(ctx, tx, n)
		return err
	})
	return u, err
}

// SetRole is SetRole with its record.
func (a *Accounts) SetRole(ctx context.Context, actor User, id int64, role Role) (User, error) {
	return a.changeUser(ctx, actor, id, "user.role", func(tx pgx.Tx, u User) (map[string]string, error) {
		return map[string]string{"from": string(u.Role), "to": string(role)}, SetRole(ctx, tx, id, role)
	})
}

// SetDisabled closes or opens an account with its record.
func (a *Accounts) SetDisabled(ctx context.Context, actor User, id int64, disabled bool) (User, error) {
	action, at := "user.enabled", (*time.Time)(nil)
	if disabled {
		now := a.now()
		action, at = "user.disabled", &now
	}
	return a.changeUser(ctx, actor, id, action, func(tx pgx.Tx, _ User) (map[string]string, error) {
		return nil, SetDisabled(ctx, tx, id, at)
	})
}

// SetPassword is SetPassword with its record.
func (a *Accounts) SetPassword(ctx context.Context, actor User, id int64, password string) (User, error) {
	return a.changeUser(ctx, actor, id, "user.password", func(tx pgx.Tx, _ User) (map[string]string, error) {
		return nil, SetPassword(ctx, tx, id, password)
	})
}

// SetProfile stores the actor's own settings. They change nothing but how
// pages look to that person and are not recorded.
func (a *Accounts) SetProfile(ctx context.Context, actor User, lang, theme string, keys bool) error {
	return SetProfile(ctx, a.db, actor.ID, lang, theme, keys)
}

func (a *Accounts) changeUser(ctx context.Context, actor User, id int64, action string,
	f func(pgx.Tx, User) (map[string]string, error)) (User, error) {
	var u User
	e := AccountEntry{Actor: actor, Action: action}
	err := a.change(ctx, &e, func(tx pgx.Tx) error {
		var err error
		if u, err = FindUser(ctx, tx, id); err != nil {
			return err
		}
		e.Object = object(u)
		e.Detail, err = f(tx, u)
		return err
	})
	return u, err
}

func (a *Accounts) record(ctx context.Context, e AccountEntry) error {
	return a.change(ctx, &e, func(pgx.Tx) error { return nil })
}

// change runs f, which may complete the entry, and appends the entry in the
// same transaction.
func (a *Accounts) change(ctx context.Context, e *AccountEntry, f func(pgx.Tx) error) error {
	e.At = a.now()
	err := pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return a.audit(ctx, tx, *e)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", e.Action, err)
	}
	return nil
}

func object(u User) string { return "user/" + u.Name }

// recordedName is how a name that somebody typed enters the record. What could
// not be a name (perhaps a password in the wrong field) does not.
func recordedName(name string) string {
	if name = NormalName(name); userName.MatchString(name) {
		return name
	}
	return "?"
}
