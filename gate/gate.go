package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
)

// Config is what a Gate needs. Zero durations take the defaults of New.
type Config struct {
	Pool    *pgxpool.Pool
	Clock   Clock
	Targets map[string]Target // by integration id
	Sources map[string]Source // by integration id
	// SubjectFields names, by integration, the field of an entity's state that
	// says whom it concerns; a baseline uses it.
	SubjectFields map[string]string
	Logger        *slog.Logger

	StaleAfter     time.Duration // a row in_flight for longer is looked up; 2 min (incident 2)
	AlertAfter     time.Duration // a row in_flight for longer is an alarm; 10 min (incident 2)
	ReconcileEvery time.Duration // period of reconciliation; 1 min
	PairWindow     time.Duration // two like mutations within it are a hash pair; 72 h (incident 1)
	UndoWindow     time.Duration // how long a release can be undone; 10 s
	SendTimeout    time.Duration // a send never outlives it; 15 s
}

// Gate admits, reserves, sends, settles and looks up. See the package comment.
type Gate struct {
	pool    *pgxpool.Pool
	clock   Clock
	targets map[string]Target
	sources map[string]Source
	log     *slog.Logger
	cfg     Config
	notes   *notifier
	jobs    *river.Client[pgx.Tx]
}

// New makes a Gate, or names everything that its configuration lacks.
func New(cfg Config) (*Gate, error) {
	var errs []error
	if cfg.Pool == nil {
		errs = append(errs, errors.New("a connection pool is required"))
	}
	if cfg.Clock == nil {
		errs = append(errs, errors.New("a clock is required"))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&cfg.StaleAfter, 2*time.Minute)
	setDefault(&cfg.AlertAfter, 10*time.Minute)
	setDefault(&cfg.ReconcileEvery, time.Minute)
	setDefault(&cfg.PairWindow, 72*time.Hour)
	setDefault(&cfg.UndoWindow, 10*time.Second)
	setDefault(&cfg.SendTimeout, 15*time.Second)
	if cfg.StaleAfter <= cfg.SendTimeout {
		errs = append(errs, fmt.Errorf("rows must stay in flight for longer (%s) than a send may take (%s)", cfg.StaleAfter, cfg.SendTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	return &Gate{
		pool: cfg.Pool, clock: cfg.Clock, targets: cfg.Targets, sources: cfg.Sources,
		log: cfg.Logger, cfg: cfg, notes: newNotifier(),
	}, nil
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

// Target returns the target of an integration, or ErrNotFound.
func (g *Gate) Target(integration string) (Target, error) {
	t, ok := g.targets[integration]
	if !ok {
		return nil, fmt.Errorf("integration %q has no target here: %w", integration, ErrNotFound)
	}
	return t, nil
}

// tx runs f in one READ COMMITTED transaction. A store that cannot be reached
// is ErrUnavailable; f may have been committed all the same, so the caller
// looks before it acts again.
func (g *Gate) tx(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, g.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return f(ctx, tx)
	})
	return storeError(err)
}

// storeError marks the errors that mean "the store is down" as ErrUnavailable.
func storeError(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || !unreachable(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// unreachable reports whether err says that Postgres could not be reached, is
// going away, or gave up this transaction for another's sake (class 40, a
// deadlock), by code and by type: the caller comes back with the same.
func unreachable(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		class := pgErr.Code[:min(2, len(pgErr.Code))]
		return class == "08" || class == "40" || class == "53" || class == "57" && pgErr.Code != "57014" || pgErr.Code == "58030"
	}
	if errors.Is(err, context.Canceled) { // the caller went away, not the store
		return false
	}
	var connErr *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connErr) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err) || errors.Is(err, pgx.ErrTxClosed) || isConnClosed(err)
}

// isConnClosed recognises pgconn's unexported "conn closed" lock error by its
// behaviour: it is a plain error without a code once the connection has died.
func isConnClosed(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if e.Error() == "conn closed" {
			return true
		}
	}
	return false
}
