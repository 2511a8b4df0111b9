package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Linking must find every committed record that has no link, without reading
// the whole table, although ids commit in any order: a transaction may take id
// 5, stay open while 6 to 900 commit and are linked, and then commit. Nothing
// kept between runs is needed, because of a bound that every run respects:
//
//   - Append holds, until its transaction ends, a shared advisory lock whose
//     key is a floor: a number not above any id that it takes afterwards.
//   - A run reads the sequence's last value, and then the floors that are held.
//     The lower of these is its own floor. A transaction whose lock it does
//     not see takes its ids later, so above the last value that was read.
//   - A run links no id beyond its floor plus the window.
//
// So as long as a transaction that may still commit id x is open, no linked id
// lies beyond x plus the window; and the first run after its commit sees the
// record (locks are released after the commit is visible) and links it before
// any higher id. An unlinked record is therefore never further than the window
// below the highest linked id, and an anti-join from there on is complete.
// A transaction that hangs holds up linking only after a whole window of
// later ids, and that shows as an audit head that stands still.
const (
	window     = 20_000
	batch      = 2_000
	floorGrain = 1_024  // floors are rounded, so that a transaction holds few locks
	floorTag   = 0x5341 // of the advisory keys that are floors
	linkKey    = 0x5341_4c494e4b
)

// Link gives every committed record that has none its link, in id order, and
// returns the head. One linker works at a time; a second one waits for the
// first. Each batch commits by itself, so that an error or a crash loses
// nothing.
func Link(ctx context.Context, pool *pgxpool.Pool) (Head, error) {
	for {
		var head Head
		var linked int
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			head, linked, err = linkBatch(ctx, tx)
			return err
		})
		if err != nil {
			return Head{}, fmt.Errorf("link audit records: %w", err)
		}
		if linked < batch {
			return head, nil
		}
	}
}

func linkBatch(ctx context.Context, tx pgx.Tx) (Head, int, error) {
	// A statement of its own: what follows sees what the linker before wrote.
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(linkKey)); err != nil {
		return Head{}, 0, fmt.Errorf("wait for the linker's lock: %w", err)
	}
	floor, err := openFloor(ctx, tx)
	if err != nil {
		return Head{}, 0, err
	}
	head, err := CurrentHead(ctx, tx)
	if err != nil {
		return Head{}, 0, err
	}
	records, err := unlinked(ctx, tx, floor)
	if err != nil || len(records) == 0 {
		return head, 0, err
	}
	rows := make([][]any, 0, len(records))
	for _, r := range records {
		head = Head{Pos: head.Pos + 1, Hash: r.link(head.Hash)}
		rows = append(rows, []any{head.Pos, r.ID, append([]byte(nil), head.Hash[:]...)})
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"audit_links"}, []string{"pos", "record_id", "hash"}, pgx.CopyFromRows(rows))
	if err != nil {
		return Head{}, 0, fmt.Errorf("store links: %w", err)
	}
	return head, len(records), nil
}

// openFloor is a number that no transaction now open, or yet to begin, takes
// an id below. The order of the two reads matters; see above.
func openFloor(ctx context.Context, tx pgx.Tx) (int64, error) {
	var last int64
	if err := tx.QueryRow(ctx, "select last_value from audit_records_id_seq").Scan(&last); err != nil {
		return 0, fmt.Errorf("read the last audit id: %w", err)
	}
	var held *int64
	err := tx.QueryRow(ctx, `
		select min(((classid::bigint & 65535) << 32 | objid::bigint) * $1::bigint)
		from pg_locks
		where locktype = 'advisory' and objsubid = 1 and classid::bigint >> 16 = $2
		  and database = (select oid from pg_database where datname = current_database())`,
		floorGrain, floorTag).Scan(&held)
	if err != nil {
		return 0, fmt.Errorf("read the floors of open transactions: %w", err)
	}
	if held != nil && *held < last {
		return *held, nil
	}
	return last, nil
}

// unlinked reads the next batch of records without a link.
func unlinked(ctx context.Context, tx pgx.Tx, floor int64) ([]Record, error) {
	var highest int64
	err := tx.QueryRow(ctx, "select record_id from audit_links order by record_id desc limit 1").Scan(&highest)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read the highest linked id: %w", err)
	}
	rows, err := tx.Query(ctx, `
		select `+columns+`
		from audit_records r
		left join audit_links l on l.record_id = r.id and l.record_id > $1
		where r.id > $1 and r.id <= $2 and l.pos is null
		order by r.id
		limit $3`, highest-window-floorGrain, floor+window, batch)
	if err != nil {
		return nil, fmt.Errorf("read records without a link: %w", err)
	}
	records, err := pgx.CollectRows(rows, scanRecord)
	if err != nil {
		return nil, fmt.Errorf("read records without a link: %w", err)
	}
	return records, nil
}
