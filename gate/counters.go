package gate

import (
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// The counters that are kept as things happen, by quarter of an hour.
const (
	countDelivery   = "delivery"
	countForward    = "forward"
	countDrop       = "drop"
	countQuarantine = "quarantine"
	countReplay     = "replay"
	countConflict   = "conflict" // answered "in flight, ask again"
)

// counterBucket is the width of a counter's row in time.
const counterBucket = 15 * time.Minute

// counterShards spreads a counter over rows, so that writers do not queue on one.
const counterShards = 16

const countSQL = `
	insert into counters (integration, bucket, name, shard, n)
	values ($1, $2, $3, $4, $5)
	on conflict (integration, bucket, name, shard) do update set n = counters.n + excluded.n`

// count adds n to the named counter as part of the batch's transaction.
func (g *Gate) count(batch *pgx.Batch, integration string, at time.Time, name string, n int64) {
	batch.Queue(countSQL, integration, at.UTC().Truncate(counterBucket), name, int16(rand.IntN(counterShards)), n)
}
