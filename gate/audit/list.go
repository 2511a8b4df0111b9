package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxList is the largest page of List, and its size when none is asked for.
const maxList = 500

// Filter selects records; a zero field selects all.
type Filter struct {
	Integration, Actor, Action, Object string

	From, To time.Time // From inclusive, To exclusive
	Before   int64     // ids below this one: the ID of the last record of the page before
	Limit    int       // of List: 1 to 500
}

// List is a page of the record, newest first. The next page is the same
// filter with Before set to the last record's ID.
func List(ctx context.Context, q Querier, f Filter) ([]Record, error) {
	limit := f.Limit
	if limit < 1 || limit > maxList {
		limit = maxList
	}
	rows, err := f.query(ctx, q, &limit)
	if err != nil {
		return nil, fmt.Errorf("list audit records: %w", err)
	}
	records, err := pgx.CollectRows(rows, scanRecord)
	if err != nil {
		return nil, fmt.Errorf("list audit records: %w", err)
	}
	return records, nil
}

// Each hands every record that the filter selects to do, newest first, and
// stops at the first error. It streams, and holds its connection meanwhile;
// Limit is not regarded.
func Each(ctx context.Context, q Querier, f Filter, do func(Record) error) error {
	rows, err := f.query(ctx, q, nil)
	if err != nil {
		return fmt.Errorf("read audit records: %w", err)
	}
	if err := forEach(rows, do); err != nil {
		return fmt.Errorf("read audit records: %w", err)
	}
	return nil
}

// query names only the conditions that are asked for, so that each finds its
// index.
func (f Filter) query(ctx context.Context, q Querier, limit *int) (pgx.Rows, error) {
	args := pgx.NamedArgs{}
	sql := "select " + columns + " from audit_records r left join audit_links l on l.record_id = r.id where true"
	where := func(asked bool, condition, name string, value any) {
		if asked {
			sql += " and " + condition
			args[name] = value
		}
	}
	where(f.Integration != "", "r.integration = @integration", "integration", f.Integration)
	where(f.Actor != "", "r.actor = @actor", "actor", f.Actor)
	where(f.Action != "", "r.action = @action", "action", f.Action)
	where(f.Object != "", "r.object = @object", "object", f.Object)
	where(!f.From.IsZero(), "r.at >= @from", "from", f.From)
	where(!f.To.IsZero(), "r.at < @to", "to", f.To)
	where(f.Before > 0, "r.id < @before", "before", f.Before)
	sql += " order by r.id desc"
	if limit != nil {
		sql += " limit @limit"
		args["limit"] = *limit
	}
	return q.Query(ctx, sql, args)
}
