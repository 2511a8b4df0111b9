package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/gate/audit"
)

// history is what planning reads of the gate's record.
type history interface {
	// MutationsAfter lists committed mutations with afterSeq < id <= uptoSeq, ascending.
	MutationsAfter(ctx context.Context, integration string, afterSeq, uptoSeq int64, limit int) ([]gate.MutationRecord, error)
	MutationsOf(ctx context.Context, integration string, ids []int64) ([]gate.MutationRecord, error)
	EntityMutations(ctx context.Context, integration, typ, id string, afterSeq int64, limit int) ([]gate.MutationRecord, error)
	Pairs(ctx context.Context, f gate.PairFilter) ([]gate.Pair, error)
	CountPairs(ctx context.Context, f gate.PairFilter) (int64, error)
}

// compensator is what applying asks of the gate: the same at-most-once path
// as every other mutation takes.
type compensator interface {
	// Compensate sends one row, or answers from its reservation when it was
	// sent before: a repeat never sends what may have been applied.
	Compensate(ctx context.Context, by gate.Actor, c gate.Compensation) (gate.Decision, error)
	// Recheck looks an uncertain mutation up at the target now.
	Recheck(ctx context.Context, mutationID int64) (gate.Decision, error)
	// CloseKeys marks mutations as rolled back inside the caller's transaction.
	CloseKeys(ctx context.Context, tx pgx.Tx, by gate.Actor, rollbackID int64, mutationIDs []int64) error
}

// rollbackGate is what planning and applying a rollback needs of the gate.
type rollbackGate interface {
	history
	compensator
	Target(integration string) (gate.Target, error)
	Touch(integration, topic string)
}

// recorded is one entity as a snapshot holds it; a nil State is an absent one.
type recorded struct {
	State   json.RawMessage // canonical
	Subject string
}

// baseWorld is a snapshot's state: what was believed at its moment.
type baseWorld interface {
	entity(k entityKey) (recorded, bool)
	keys() iter.Seq[entityKey]
	size() int
}

// sealedWorlds finds snapshots and opens their verified states.
type sealedWorlds interface {
	Get(ctx context.Context, integration string, seq int64) (Snapshot, error)
	// open also says which mutations are inside.
	open(ctx context.Context, s Snapshot) (baseWorld, Position, error)
}

// open reads what a snapshot sealed, checked against its manifest.
func (s *Service) open(ctx context.Context, snap Snapshot) (baseWorld, Position, error) {
	w, err := s.World(ctx, snap)
	if err != nil {
		return nil, Position{}, err
	}
	return worldBase{w}, w.Manifest.Mutations, nil
}

// worldBase is a World as planning reads it.
type worldBase struct{ world *World }

func (b worldBase) size() int { return b.world.Len() }

func (b worldBase) entity(k entityKey) (recorded, bool) {
	e, ok := b.world.Lookup(k.Type, k.ID)
	return recorded{e.State, e.Subject}, ok
}

func (b worldBase) keys() iter.Seq[entityKey] {
	return func(yield func(entityKey) bool) {
		for e := range b.world.All() {
			if !yield(entityKey{e.Type, e.ID}) {
				return
			}
		}
	}
}

// rollbacks proposes, plans, approves and applies rollbacks. Service embeds it.
type rollbacks struct {
	pool    *pgxpool.Pool
	begin   func(ctx context.Context) (pgx.Tx, error) // pool.Begin
	gate    rollbackGate
	worlds  sealedWorlds
	clock   gate.Clock
	log     *slog.Logger
	planTTL time.Duration
	jobs    jobInserter // nil: only the periodic round takes work up
}

func newRollbacks(pool *pgxpool.Pool, g rollbackGate, worlds sealedWorlds, clock gate.Clock, log *slog.Logger, planTTL time.Duration) *rollbacks {
	return &rollbacks{
		pool: pool, begin: pool.Begin, gate: g, worlds: worlds,
		clock: clock, log: log, planTTL: planTTL,
	}
}

// tx runs f in one READ COMMITTED transaction. An error may also mean that the
// commit's answer was lost, so a caller looks before it acts again.
func (r *rollbacks) tx(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, err := r.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after a commit
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// record appends one line about a rollback to the audit record.
func (r *rollbacks) record(ctx context.Context, tx pgx.Tx, by gate.Actor, rb Rollback, action string, detail map[string]any) error {
	return audit.Append(ctx, tx, entry(r.clock.Now(), by, rb.Integration, action, rollbackName(rb.ID), detail))
}

// touch tells whoever watches the rollback's page that it moved.
func (r *rollbacks) touch(rb Rollback) {
	r.gate.Touch(rb.Integration, fmt.Sprintf("rollback:%d", rb.ID))
}

// rollbackName is a rollback's name in the audit record and in errors: "R-5".
func rollbackName(id int64) string { return fmt.Sprintf("R-%d", id) }
