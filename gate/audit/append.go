package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Entry is one thing that an actor did, or was refused.
type Entry struct {
	At          time.Time // by the gate's clock
	ActorKind   string    // person, agent or job
	Actor       string
	Integration string // empty when it concerns none
	Action      string // "quarantine.release"
	Object      string // "Q-17"
	Detail      map[string]any
}

// Append adds entries, in their order, in the caller's transaction and in one
// round trip. NUL and invalid UTF-8 in text are replaced by U+FFFD, because a
// hostile name must not keep an action out of the record; for the same reason
// a detail above 16 KiB is cut down (see encodeDetail), not refused. An error
// means that the transaction must not commit.
func Append(ctx context.Context, tx pgx.Tx, entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	args, err := appendArgs(entries)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, appendSQL, args...); err != nil {
		return fmt.Errorf("append to the audit record: %w", err)
	}
	return nil
}

// Queue is Append as a part of a batch that runs in the caller's transaction,
// so that the record costs no round trip of its own.
func Queue(batch *pgx.Batch, entries ...Entry) error {
	args, err := appendArgs(entries)
	if err != nil {
		return err
	}
	batch.Queue(appendSQL, args...)
	return nil
}

// appendArgs are the columns of the entries, as appendSQL takes them.
func appendArgs(entries []Entry) ([]any, error) {
	var ats []time.Time
	var kinds, actors, integrations, actions, objects []string
	var details [][]byte
	for _, e := range entries {
		detail, err := encodeDetail(e.Detail)
		if err != nil {
			return nil, fmt.Errorf("audit %s: %w", e.Action, err)
		}
		ats = append(ats, e.At)
		kinds = append(kinds, clean(e.ActorKind))
		actors = append(actors, clean(e.Actor))
		integrations = append(integrations, clean(e.Integration))
		actions = append(actions, clean(e.Action))
		objects = append(objects, clean(e.Object))
		details = append(details, detail)
	}
	return []any{ats, kinds, actors, integrations, actions, objects, details, floorTag, floorGrain}, nil
}

// appendSQL first shows, as a shared advisory lock that lasts as long as the
// transaction, a bound below every id that it is about to take; link.go says
// what for. The lock comes before the ids because the join needs its row.
const appendSQL = `
with floor as materialized (
  select pg_advisory_xact_lock_shared(($8::bigint << 48) | (last_value / $9::bigint)) from audit_records_id_seq
)
insert into audit_records (at, actor_kind, actor, integration, action, object, detail)
select e.at, e.actor_kind, e.actor, e.integration, e.action, e.object, e.detail
from floor, unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[])
  with ordinality as e (at, actor_kind, actor, integration, action, object, detail, n)
order by e.n`

// clean makes s storable as PostgreSQL text.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

func hexDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
