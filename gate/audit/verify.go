package audit

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// BrokenError says where the chain does not hold.
type BrokenError struct {
	Pos  int64 // the first position that is wrong; 0 when it is not in the chain
	What string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the audit chain is broken at position %d: %s", e.Pos, e.What)
}

// Verify reads the chain from a head that is trusted, or from its start with
// the zero Head, and returns the head that it arrives at. It streams: memory
// does not grow with the chain. A chain that was changed, cut or reordered
// is a *BrokenError, and so, in a reading from the start, is a record that was
// slipped in far below the head. That a tail was cut shows only against a
// later head that was kept elsewhere: verify from that one.
func Verify(ctx context.Context, q Querier, from Head) (Head, error) {
	if err := hasHead(ctx, q, from); err != nil {
		return Head{}, err
	}
	end, err := CurrentHead(ctx, q)
	if err != nil {
		return Head{}, err
	}
	rows, err := q.Query(ctx, `
		select `+columns+`
		from audit_links l
		join audit_records r on r.id = l.record_id
		where l.pos > $1
		order by l.pos`, from.Pos)
	if err != nil {
		return Head{}, fmt.Errorf("verify the audit chain: %w", err)
	}
	head := from
	err = forEach(rows, func(r Record) error {
		if r.Pos != head.Pos+1 {
			return &BrokenError{head.Pos + 1, "the record is missing"}
		}
		next := Head{Pos: r.Pos, Hash: r.link(head.Hash)}
		if next.Hash != r.Hash {
			return &BrokenError{r.Pos, fmt.Sprintf("record %d, or its hash, is not what was linked", r.ID)}
		}
		head = next
		return nil
	})
	if err != nil {
		return Head{}, fmt.Errorf("verify the audit chain: %w", err)
	}
	if head.Pos < end.Pos {
		return Head{}, &BrokenError{head.Pos + 1, "the record is missing"}
	}
	if from == (Head{}) {
		if err := noneLeftOut(ctx, q); err != nil {
			return Head{}, err
		}
	}
	return head, nil
}

// noneLeftOut looks for a record so far below the highest linked id that Link
// would have linked it, had it come from Append: somebody put it there since.
func noneLeftOut(ctx context.Context, q Querier) error {
	rows, err := q.Query(ctx, `
		select r.id
		from audit_records r
		where r.id <= (select max(record_id) from audit_links) - $1
		  and not exists (select from audit_links l where l.record_id = r.id)
		order by r.id
		limit 1`, window+floorGrain)
	if err != nil {
		return fmt.Errorf("look for records outside the chain: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for records outside the chain: %w", err)
	}
	if len(ids) > 0 {
		return &BrokenError{0, fmt.Sprintf("record %d is not in the chain", ids[0])}
	}
	return nil
}

// hasHead checks that the chain passes through a head that was kept.
func hasHead(ctx context.Context, q Querier, from Head) error {
	if from == (Head{}) {
		return nil
	}
	var hash []byte
	rows, err := q.Query(ctx, "select hash from audit_links where pos = $1", from.Pos)
	if err != nil {
		return fmt.Errorf("verify the audit chain: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return fmt.Errorf("verify the audit chain: %w", err)
	}
	if len(found) == 1 {
		hash = found[0]
	}
	switch {
	case hash == nil:
		return &BrokenError{from.Pos, "the chain ends before the head that was kept"}
	case !bytes.Equal(hash, from.Hash[:]):
		return &BrokenError{from.Pos, "the chain does not pass through the head that was kept"}
	}
	return nil
}

// forEach hands each row to do and stops at its first error.
func forEach(rows pgx.Rows, do func(Record) error) error {
	defer rows.Close()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return err
		}
		if err := do(r); err != nil {
			return err
		}
	}
	return rows.Err()
}
