package gate

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// holdMutation opens an item for a person, or finds the open one for the same
// mutation: a provider that retries a held event does not fill the queue.
func (g *Gate) holdMutation(ctx context.Context, tx pgx.Tx, a attempt, s seen, r ruling, id int64, now time.Time) (int64, error) {
	var item int64
	if a.natural != (Key{}) {
		if err := lockHold(ctx, tx, a.natural); err != nil {
			return 0, err
		}
		err := tx.QueryRow(ctx, `
			select q.id from quarantine_items q join mutations m on m.id = q.mutation_id
			where q.integration = $1 and q.state in ('open', 'releasing') and m.natural_key = $2 and m.fingerprint = $3
			order by q.id limit 1`, a.req.Integration, a.natural[:], a.fingerprint[:]).Scan(&item)
		if err == nil || !errors.Is(err, pgx.ErrNoRows) {
			return item, err
		}
	}
	twin := int64(0)
	if s.reserved != nil {
		twin = s.reserved.mutationID
	}
	return openItem(ctx, tx, newItem{
		by:          a.by,
		integration: a.req.Integration, kind: "mutation", mutationID: id, reason: r.reason, detail: r.detail,
		subject: a.req.Mutation.Subject, twin: twin, rollbackID: cmp.Or(s.tombOf, s.rolledBack), fingerprint: a.fingerprint[:], at: now,
	})
}

// lockHold lets one transaction at a time look for the open item of a key and
// open it: of two, both could be released.
func lockHold(ctx context.Context, tx pgx.Tx, key Key) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(binary.BigEndian.Uint64(key[:8])))
	if err != nil {
		return fmt.Errorf("wait for another hold of the key: %w", err)
	}
	return nil
}

func (a attempt) decisionRow(s seen, r ruling, mutation int64, enforced bool, now time.Time) decisionRow {
	return decisionRow{
		integration: a.req.Integration, at: now, kind: "mutation", mode: s.mode, verdict: r.verdict,
		reason: r.reason, detail: r.detail, enforced: enforced, account: a.req.Event.Account,
		eventID: a.req.Event.ID, effect: a.req.Effect, run: a.req.Run, agent: a.req.Agent,
		key: a.keyBytes(), mutationID: mutation,
	}
}
