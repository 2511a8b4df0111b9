package gate

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// querier is what a read needs: the pool, or the transaction that a command
// holds, so that the command returns what it has just written.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// The sizes of a page of a list.
const (
	defaultPage = 50
	largestPage = 500
)

// pageSize is the number of rows for a limit: 0 means the default.
func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, largestPage)
}
