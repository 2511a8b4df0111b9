package web

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sluis/views"
)

// Config is what both servers need. Fields that only one of them uses say so.
type Config struct {
	Log *slog.Logger
	Now func() time.Time
	// Ready answers /readyz: nil when requests can be served. A nil func means
	// always ready.
	Ready func(context.Context) error

	// Secure says that the console is reached over https (a proxy in front):
	// the cookie then carries the __Host- prefix and HSTS is sent. Operators.
	Secure bool
	// Zone is the organisation's zone; nil means Europe/Amsterdam. Operators.
	Zone *time.Location
	// Sessions keeps who is signed in. Operators.
	Sessions *Sessions
	// Hub carries what has changed to open event streams. Operators.
	Hub *Hub
	// Integrations lists the integrations by id, the default first. Operators;
	// may be nil.
	Integrations func(context.Context) ([]string, error)
	// Chrome gives the surroundings of a page; a failure shows as "no data",
	// never as zero. Operators; may be nil.
	Chrome func(ctx context.Context, user User, integration string) (views.Chrome, error)
	// Refused writes the audit record of a refused action. Operators.
	Refused func(ctx context.Context, r Refusal)
	// Classify turns a domain error into its page; nil for an error that it
	// does not know. Operators; may be nil.
	Classify func(error) *Error

	// Principal resolves a bearer token. It returns ErrUnknownToken for a token
	// that is not valid; any other error is answered with 503. Agents.
	Principal func(ctx context.Context, token string) (Principal, error)
	// Problem turns a domain error into its problem document; nil for an error
	// that it does not know. Agents; may be nil.
	Problem func(error) *Problem
	// BodyLimit is the largest request body in bytes; 0 means 1 MiB. Agents.
	BodyLimit int64
}

// Principal is who calls the API: an agent, bound to one integration. An empty
// Integration admits any.
type Principal struct {
	Agent       string
	Integration string
}

// ErrUnknownToken is what Config.Principal returns for a token that is not
// valid: unknown, expired or revoked.
var ErrUnknownToken = errors.New("unknown token")

// Refusal is an action that was refused before its handler ran.
type Refusal struct {
	At        time.Time
	User      User // zero when not signed in
	Route     string
	Method    string
	Path      string
	Reason    string // signed_out, role or cross_origin
	RequestID string
	Address   string
}

// Reasons of a Refusal.
const (
	RefusedSignedOut   = "signed_out"
	RefusedRole        = "role"
	RefusedCrossOrigin = "cross_origin"
)

func (c Config) checkShared() []error {
	var errs []error
	if c.Log == nil {
		errs = append(errs, errors.New("config: Log is missing"))
	}
	if c.Now == nil {
		errs = append(errs, errors.New("config: Now is missing"))
	}
	return errs
}

func (c Config) checkOperators() error {
	errs := c.checkShared()
	if c.Sessions == nil {
		errs = append(errs, errors.New("config: Sessions is missing"))
	}
	if c.Hub == nil {
		errs = append(errs, errors.New("config: Hub is missing"))
	}
	if c.Refused == nil {
		errs = append(errs, errors.New("config: Refused is missing"))
	}
	return errors.Join(errs...)
}

func (c Config) checkAgents() error {
	errs := c.checkShared()
	if c.Principal == nil {
		errs = append(errs, errors.New("config: Principal is missing"))
	}
	return errors.Join(errs...)
}
