package gate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// newItem is a mutation or delivery that waits for a person.
type newItem struct {
	integration string
	kind        string // "mutation" or "delivery"
	mutationID  int64  // exactly one of these two
	deliveryID  int64
	reason      Reason
	detail      string
	subject     string
	twin        int64 // the earlier mutation that it repeats, 0 when none
	rollbackID  int64 // the rollback that blocks it, 0 when none
	fingerprint []byte
	at          time.Time
}

// openItem inserts an open item and returns its id. The event and entity that
// people search by are taken from the mutation or delivery.
func openItem(ctx context.Context, tx pgx.Tx, it newItem) (int64, error) {
	fingerprint := it.fingerprint
	if len(fingerprint) != 32 || [32]byte(fingerprint) == [32]byte{} {
		fingerprint = nil
	}
	var id int64
	err := tx.QueryRow(ctx, `
		insert into quarantine_items (integration, kind, mutation_id, delivery_id, reason, detail, subject,
			event_id, entity_id, twin_mutation, rollback_id, fingerprint, state, opened_at)
		select @integration, @kind, nullif(@mutation::bigint, 0), nullif(@delivery::bigint, 0), @reason, @detail, @subject,
			coalesce(m.event_id, e.event_id, ''), coalesce(m.entity_id, ''),
			nullif(@twin::bigint, 0), nullif(@rollback::bigint, 0), @fingerprint::bytea, 'open', @at::timestamptz
		from (select 1) one
		left join mutations m on m.id = @mutation::bigint
		left join deliveries d on d.id = @delivery::bigint
		left join events e on e.seq = d.event_seq
		returning id`,
		pgx.NamedArgs{
			"integration": it.integration, "kind": it.kind, "mutation": it.mutationID, "delivery": it.deliveryID,
			"reason": it.reason, "detail": it.detail, "subject": it.subject, "twin": it.twin, "rollback": it.rollbackID,
			"fingerprint": fingerprint, "at": it.at,
		}).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("open a quarantine item: %w", err)
	}
	return id, nil
}

func itemName(id int64) string { return "Q-" + strconv.FormatInt(id, 10) }
