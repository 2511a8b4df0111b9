package web

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Errors over users on which pages branch.
var (
	ErrUserName    = errors.New("user name is not allowed")
	ErrUserDisplay = errors.New("display name is empty or too long")
	ErrUserTaken   = errors.New("user name is taken")
	ErrUserUnknown = errors.New("user does not exist")
	ErrRole        = errors.New("unknown role")
	ErrLastAdmin   = errors.New("the last administrator must stay")
	// ErrSignIn covers every reason why a sign-in fails, so that the answer
	// does not tell which names exist.
	ErrSignIn = errors.New("name or password is wrong")
)

const uniqueViolation = "23505"

var userName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

const displayMax = 100

// NewUser is what CreateUser needs.
type NewUser struct {
	Name     string
	Display  string
	Role     Role
	Password string
	At       time.Time
}

// CreateUser stores a user whose name is unique without regard to case. It
// returns ErrUserName, ErrUserDisplay, ErrRole, ErrPassword or ErrUserTaken
// when the input is not allowed.
func CreateUser(ctx context.Context, db DB, n NewUser) (User, error) {
	u := User{Name: NormalName(n.Name), Display: strings.TrimSpace(n.Display), Role: n.Role, Keys: true}
	if err := u.check(); err != nil {
		return User{}, err
	}
	hash, err := hashPassword(ctx, n.Password)
	if err != nil {
		return User{}, err
	}
	err = db.QueryRow(ctx, `
		insert into users (name, display, role, password_hash, created_at)
		values ($1, $2, $3, $4, $5) returning id`,
		u.Name, u.Display, u.Role, hash, n.At).Scan(&u.ID)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == uniqueViolation {
		return User{}, ErrUserTaken
	}
	if err != nil {
		return User{}, fmt.Errorf("create user: %w", err)
	}
	return u, nil
}

// NormalName returns the form in which a sign-in name is stored and compared.
func NormalName(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

func (u User) check() error {
	switch {
	case !userName.MatchString(u.Name):
		return ErrUserName
	case u.Display == "" || len(u.Display) > displayMax:
		return ErrUserDisplay
	case !u.Role.Valid():
		return ErrRole
	}
	return nil
}

const userColumns = `id, name, display, role, lang, theme, keys, disabled_at is not null`

func scanUser(row pgx.CollectableRow) (User, error) {
	var u User
	err := row.Scan(&u.ID, &u.Name, &u.Display, &u.Role, &u.Lang, &u.Theme, &u.Keys, &u.Disabled)
	return u, err
}

// VerifyUser returns the user whose name and password these are. Any failure
// of the two (unknown, disabled, wrong) is ErrSignIn and takes the same time.
func VerifyUser(ctx context.Context, db DB, name, password string) (User, error) {
	name = NormalName(name)
	if !userName.MatchString(name) {
		name = "" // no such user, at the same cost
	}
	var u User
	var hash string
	err := db.QueryRow(ctx, `
		select `+userColumns+`, password_hash from users where name = $1`, name).
		Scan(&u.ID, &u.Name, &u.Display, &u.Role, &u.Lang, &u.Theme, &u.Keys, &u.Disabled, &hash)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return User{}, fmt.Errorf("find user: %w", err)
	}
	match, err := matchPassword(ctx, password, hash)
	if err != nil {
		return User{}, err
	}
	if !match || u.Disabled {
		return User{}, ErrSignIn
	}
	return u, nil
}

// ListUsers returns all users by name, disabled ones last.
func ListUsers(ctx context.Context, db DB) ([]User, error) {
	rows, err := db.Query(ctx, `select `+userColumns+` from users order by disabled_at is not null, name`)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanUser)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return list, nil
}

// FindUser returns one user, or ErrUserUnknown.
func FindUser(ctx context.Context, db DB, id int64) (User, error) {
	rows, err := db.Query(ctx, `select `+userColumns+` from users where id = $1`, id)
	if err != nil {
		return User{}, fmt.Errorf("find user: %w", err)
	}
	u, err := pgx.CollectExactlyOneRow(rows, scanUser)
	if errors.Is(err, pgx.ErrNoRows) {
		return User{}, ErrUserUnknown
	}
	if err != nil {
		return User{}, fmt.Errorf("find user: %w", err)
	}
	return u, nil
}

// SetRole gives the user another role and ends the user's sessions, so that no
// session keeps a right that was taken away. Call it in a transaction: it
// locks the administrators, and the last one cannot be demoted (ErrLastAdmin).
func SetRole(ctx context.Context, tx pgx.Tx, id int64, role Role) error {
	if !role.Valid() {
		return ErrRole
	}
	if role != Admin {
		if err := keepAnAdmin(ctx, tx, id); err != nil {
			return err
		}
	}
	if err := updateUser(ctx, tx, `update users set role = $2 where id = $1`, id, role); err != nil {
		return err
	}
	return endSessions(ctx, tx, id)
}

// SetDisabled closes or opens the account. Closing ends the user's sessions;
// the last administrator cannot be closed (ErrLastAdmin). A nil at opens it.
func SetDisabled(ctx context.Context, tx pgx.Tx, id int64, at *time.Time) error {
	if at != nil {
		if err := keepAnAdmin(ctx, tx, id); err != nil {
			return err
		}
	}
	if err := updateUser(ctx, tx, `update users set disabled_at = $2 where id = $1`, id, at); err != nil {
		return err
	}
	return endSessions(ctx, tx, id)
}

// SetPassword sets a new password and ends the user's sessions.
func SetPassword(ctx context.Context, db DB, id int64, password string) error {
	hash, err := hashPassword(ctx, password)
	if err != nil {
		return err
	}
	if err := updateUser(ctx, db, `update users set password_hash = $2 where id = $1`, id, hash); err != nil {
		return err
	}
	return endSessions(ctx, db, id)
}

// SetProfile stores the person's own settings: language, theme and single keys.
// An unknown language or theme becomes "", the browser's or the system's.
func SetProfile(ctx context.Context, db DB, id int64, lang, theme string, keys bool) error {
	if lang != "en" && lang != "nl" {
		lang = ""
	}
	if theme != "light" && theme != "dark" {
		theme = ""
	}
	return updateUser(ctx, db, `update users set lang = $2, theme = $3, keys = $4 where id = $1`, id, lang, theme, keys)
}

// keepAnAdmin locks the open administrators in one order and refuses when id
// is the only one.
func keepAnAdmin(ctx context.Context, tx pgx.Tx, id int64) error {
	rows, err := tx.Query(ctx, `select id from users where role = 'admin' and disabled_at is null order by id for update`)
	if err != nil {
		return fmt.Errorf("lock administrators: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("lock administrators: %w", err)
	}
	if len(ids) == 1 && ids[0] == id {
		return ErrLastAdmin
	}
	return nil
}

func updateUser(ctx context.Context, db DB, sql string, args ...any) error {
	tag, err := db.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("update user: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrUserUnknown
	}
	return nil
}

func endSessions(ctx context.Context, db DB, id int64) error {
	if _, err := db.Exec(ctx, `delete from sessions where user_id = $1`, id); err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	return nil
}
