package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/gob"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/sessions"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what the functions over users and sessions need: a pool, a connection
// or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Tx is a transaction that is handed down, for packages that pass it on without
// importing pgx.
type Tx = pgx.Tx

// How long a session lasts (OWASP, session management: an idle and an absolute
// limit), and how often its use is written down.
const (
	SessionIdle     = 8 * time.Hour
	SessionAbsolute = 24 * time.Hour
	seenInterval    = time.Minute
	tokenBytes      = 32
)

type sessionValue string

// sessionUser is the key under which a loaded session holds its User. It is
// not written: the user is read anew with each request.
const sessionUser sessionValue = "user"

// Sessions is a gorilla sessions.Store over PostgreSQL. The cookie carries a
// random token; the database holds only its SHA-256, so that a copy of the
// database signs nobody in.
type Sessions struct {
	db     DB
	now    func() time.Time
	secure bool
}

var _ sessions.Store = (*Sessions)(nil)

// NewSessions returns a store. secure marks cookies for https only.
func NewSessions(db DB, now func() time.Time, secure bool) *Sessions {
	return &Sessions{db: db, now: now, secure: secure}
}

// Get returns the request's session; see New.
func (s *Sessions) Get(r *http.Request, name string) (*sessions.Session, error) {
	return s.New(r, name)
}

// New returns the session that the request's cookie names. Without a cookie,
// or for a session that has ended, the session is new and holds no user. The
// session is never nil.
func (s *Sessions) New(r *http.Request, name string) (*sessions.Session, error) {
	session := sessions.NewSession(s, name)
	session.IsNew = true
	session.Options = &sessions.Options{
		Path: "/", MaxAge: int(SessionAbsolute / time.Second),
		HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode,
	}
	cookie, err := r.Cookie(name)
	if err != nil {
		return session, nil
	}
	row, err := s.load(r.Context(), cookie.Value)
	if errors.Is(err, pgx.ErrNoRows) {
		return session, nil
	}
	if err != nil {
		return session, err
	}
	if err := decodeValues(row.data, session); err != nil {
		return session, err
	}
	session.ID, session.IsNew = cookie.Value, false
	session.Values[sessionUser] = row.user
	return session, s.touch(r.Context(), row)
}

// Save writes the session's values. A session with a MaxAge below zero is
// deleted and its cookie cleared. Only a session with a user can be written.
func (s *Sessions) Save(r *http.Request, w http.ResponseWriter, session *sessions.Session) error {
	if session.Options.MaxAge < 0 {
		if err := s.delete(r.Context(), session.ID); err != nil {
			return err
		}
		http.SetCookie(w, sessions.NewCookie(session.Name(), "", session.Options))
		return nil
	}
	data, err := encodeValues(session)
	if err != nil {
		return err
	}
	if session.ID != "" {
		_, err := s.db.Exec(r.Context(), `update sessions set data = $2 where token_hash = $1`, tokenHash(session.ID), data)
		if err != nil {
			return fmt.Errorf("write session: %w", err)
		}
		return nil
	}
	user, ok := session.Values[sessionUser].(User)
	if !ok {
		return errors.New("write session: no user")
	}
	return s.insert(r.Context(), w, session, user, data)
}

func (s *Sessions) insert(ctx context.Context, w http.ResponseWriter, session *sessions.Session, user User, data []byte) error {
	token, err := newToken()
	if err != nil {
		return err
	}
	now := s.now()
	_, err = s.db.Exec(ctx, `
		insert into sessions (token_hash, user_id, data, created_at, seen_at, expires_at)
		values ($1, $2, $3, $4, $4, $5)`,
		tokenHash(token), user.ID, data, now, now.Add(SessionIdle))
	if err != nil {
		return fmt.Errorf("insert session: %w", err)
	}
	session.ID, session.IsNew = token, false
	http.SetCookie(w, sessions.NewCookie(session.Name(), token, session.Options))
	return nil
}

// Renew ends the old session and starts one for the user under a new token, so
// that a token planted before sign-in is worth nothing (session fixation).
func (s *Sessions) Renew(r *http.Request, w http.ResponseWriter, old *sessions.Session, user User) (*sessions.Session, error) {
	if err := s.delete(r.Context(), old.ID); err != nil {
		return nil, err
	}
	session := sessions.NewSession(s, old.Name())
	options := *old.Options
	session.Options = &options
	session.Values[sessionUser] = user
	if err := s.Save(r, w, session); err != nil {
		return nil, err
	}
	return session, nil
}

// Alive reports whether the session with the token still holds: not ended, not
// revoked, its user not disabled.
func (s *Sessions) Alive(ctx context.Context, token string) (bool, error) {
	_, err := s.load(ctx, token)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Revoke ends every session of the user.
func (s *Sessions) Revoke(ctx context.Context, db DB, userID int64) error {
	if _, err := db.Exec(ctx, `delete from sessions where user_id = $1`, userID); err != nil {
		return fmt.Errorf("revoke sessions: %w", err)
	}
	return nil
}

// Purge deletes sessions that have ended and returns how many there were.
func (s *Sessions) Purge(ctx context.Context) (int64, error) {
	tag, err := s.db.Exec(ctx, `delete from sessions where expires_at <= $1`, s.now())
	if err != nil {
		return 0, fmt.Errorf("purge sessions: %w", err)
	}
	return tag.RowsAffected(), nil
}

type sessionRow struct {
	hash      []byte
	data      []byte
	createdAt time.Time
	seenAt    time.Time
	user      User
}

func (s *Sessions) load(ctx context.Context, token string) (sessionRow, error) {
	row := sessionRow{hash: tokenHash(token)}
	u := &row.user
	err := s.db.QueryRow(ctx, `
		select s.data, s.created_at, s.seen_at, u.id, u.name, u.display, u.role, u.lang, u.theme, u.keys
		from sessions s join users u on u.id = s.user_id
		where s.token_hash = $1 and s.expires_at > $2 and u.disabled_at is null`,
		row.hash, s.now()).Scan(&row.data, &row.createdAt, &row.seenAt,
		&u.ID, &u.Name, &u.Display, &u.Role, &u.Lang, &u.Theme, &u.Keys)
	if err != nil {
		return sessionRow{}, fmt.Errorf("load session: %w", err)
	}
	return row, nil
}

// touch moves the idle limit on, at most once a minute and never past the
// absolute limit.
func (s *Sessions) touch(ctx context.Context, row sessionRow) error {
	now := s.now()
	if now.Sub(row.seenAt) < seenInterval {
		return nil
	}
	expires := now.Add(SessionIdle)
	if limit := row.createdAt.Add(SessionAbsolute); expires.After(limit) {
		expires = limit
	}
	_, err := s.db.Exec(ctx, `update sessions set seen_at = $2, expires_at = $3 where token_hash = $1 and seen_at = $4`,
		row.hash, now, expires, row.seenAt)
	if err != nil {
		return fmt.Errorf("touch session: %w", err)
	}
	return nil
}

func (s *Sessions) delete(ctx context.Context, token string) error {
	if token == "" {
		return nil
	}
	if _, err := s.db.Exec(ctx, `delete from sessions where token_hash = $1`, tokenHash(token)); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

func tokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func newToken() (string, error) {
	b := make([]byte, tokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("session token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

func encodeValues(session *sessions.Session) ([]byte, error) {
	values := make(map[any]any, len(session.Values))
	for k, v := range session.Values {
		if k != sessionUser {
			values[k] = v
		}
	}
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(values); err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	return buf.Bytes(), nil
}

func decodeValues(data []byte, session *sessions.Session) error {
	if len(data) == 0 {
		return nil
	}
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&session.Values); err != nil {
		return fmt.Errorf("decode session: %w", err)
	}
	return nil
}
