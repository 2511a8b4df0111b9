package snapshots

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/snapshots/objectstore"
)

// Store keeps sealed objects; *objectstore.Store is the one in use, and tests
// put faults in between.
type Store interface {
	// Put writes a new object locked until then; objectstore.ErrExists when
	// another writer has the key. After any other error it may be there.
	Put(ctx context.Context, key string, body []byte, retainUntil time.Time) (objectstore.Receipt, error)
	// Get reads one version, the current one for an empty id.
	Get(ctx context.Context, key, versionID string) ([]byte, error)
	// Head describes the first version ever written under a key.
	Head(ctx context.Context, key string) (objectstore.Receipt, error)
	// Versions lists all versions and delete markers by key, newest first.
	Versions(ctx context.Context, prefix string) iter.Seq2[objectstore.Object, error]
	// Retention is a version's lock as the store holds it.
	Retention(ctx context.Context, key, versionID string) (mode string, until time.Time, err error)
	// Extend moves the end of a lock to a later moment.
	Extend(ctx context.Context, key, versionID string, until time.Time) error
}

// Gate is what snapshots and rollbacks need of the gate: *gate.Gate.
type Gate interface {
	chainGate
	rollbackGate
}

// chainGate is what taking and judging snapshots needs.
type chainGate interface {
	Integrations(ctx context.Context) ([]gate.Integration, error)
	Integration(ctx context.Context, id string) (gate.Integration, error)
	Pairs(ctx context.Context, f gate.PairFilter) ([]gate.Pair, error)
	Touch(integration, topic string)
}

// Config is what a Service needs. Zero durations take the defaults.
type Config struct {
	Pool  *pgxpool.Pool
	Gate  Gate
	Store Store
	Keys  Keys
	Clock gate.Clock // stamps snapshots; may be a recorded trace's
	// RealNow is the wall clock: locks count by the store's real time, also
	// while a recorded trace is played.
	RealNow   func() time.Time
	Logger    *slog.Logger
	Retention time.Duration // how long every snapshot stays locked; 90 days
	PlanTTL   time.Duration // how long a rollback plan can be approved; 30 min
}

// Service takes, keeps and verifies snapshots, and plans and applies
// rollbacks. See the package comment. It is safe for concurrent use, also by
// several processes on one database and store.
type Service struct {
	*rollbacks

	pool      *pgxpool.Pool
	gate      Gate
	store     Store
	keys      Keys
	clock     gate.Clock
	realNow   func() time.Time
	log       *slog.Logger
	retention time.Duration
	jobs      *river.Client[pgx.Tx]
}

const (
	defaultRetention = 90 * 24 * time.Hour
	defaultPlanTTL   = 30 * time.Minute
)

// New makes a Service, or names everything that its configuration lacks.
func New(cfg Config) (*Service, error) {
	var errs []error
	require := func(missing bool, what string) {
		if missing {
			errs = append(errs, errors.New(what+" is required"))
		}
	}
	require(cfg.Pool == nil, "a connection pool")
	require(cfg.Gate == nil, "a gate")
	require(cfg.Store == nil, "an object store")
	require(cfg.Keys.signer == nil, "a signing key")
	require(cfg.Clock == nil, "a clock")
	require(cfg.RealNow == nil, "the wall clock (RealNow)")
	if cfg.Retention < 0 || cfg.PlanTTL < 0 {
		errs = append(errs, errors.New("retention and plan lifetime cannot be negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Retention == 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.PlanTTL == 0 {
		cfg.PlanTTL = defaultPlanTTL
	}
	s := &Service{
		pool: cfg.Pool, gate: cfg.Gate, store: cfg.Store, keys: cfg.Keys, clock: cfg.Clock,
		realNow: cfg.RealNow, log: cfg.Logger, retention: cfg.Retention,
	}
	s.rollbacks = newRollbacks(cfg.Pool, cfg.Gate, s, cfg.Clock, cfg.Logger, cfg.PlanTTL)
	return s, nil
}

// SetJobs hands over the client that jobs are inserted with, in the same
// transaction as what they belong to. It comes after New because the client
// needs the workers first.
func (s *Service) SetJobs(jobs *river.Client[pgx.Tx]) {
	s.jobs = jobs
	s.rollbacks.jobs = jobs
}

// entry is an audit entry of this package.
func entry(at time.Time, by gate.Actor, integration, action, object string, detail map[string]any) audit.Entry {
	return audit.Entry{
		At: at, ActorKind: string(by.Kind), Actor: by.Name,
		Integration: integration, Action: action, Object: object, Detail: detail,
	}
}

// snapshotName is how the audit record names a snapshot.
func snapshotName(integration string, seq int64) string {
	return fmt.Sprintf("S-%s-%d", integration, seq)
}
