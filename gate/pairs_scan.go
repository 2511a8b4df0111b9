package gate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// scanChunk is how many mutations one transaction of a scan covers.
const scanChunk = 10_000

// horizonWait bounds how long a scan holds up writers while it fixes its end.
const horizonWait = "2s"

// ScanPairs looks for hash pairs among the mutations since the last scan: like
// content for the same subject, applied twice within PairWindow (incident 1,
// rule d). Each new mutation is looked up by its fingerprint, so the cost is
// that of what is new. The scan stops before the oldest mutation whose outcome
// is not known yet, and starts there the next time, so that none is missed.
// One scan of an integration works at a time; a second waits and goes on from
// where the first ended.
func (g *Gate) ScanPairs(ctx context.Context, by Actor, integration string) (ScanResult, error) {
	if _, err := g.Integration(ctx, integration); err != nil {
		return ScanResult{}, err
	}
	horizon, err := g.scanHorizon(ctx)
	if err != nil {
		return ScanResult{}, err
	}
	var total ScanResult
	for first := true; ; first = false {
		var step ScanResult
		var more bool
		err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			step, more, err = g.scanStep(ctx, tx, by, integration, horizon)
			return err
		})
		if err != nil {
			return total, fmt.Errorf("scan %q for hash pairs: %w", integration, err)
		}
		if first {
			total.From = step.From
		}
		total.To = step.To
		total.Found += step.Found
		if !more {
			g.touchPairs(integration)
			return total, nil
		}
	}
}

// scanHorizon is an id up to which every mutation that will ever commit has
// committed. Ids commit in any order; but a transaction takes its id under a
// lock on the table, so whoever holds the table for a moment has seen them all.
func (g *Gate) scanHorizon(ctx context.Context) (horizon int64, err error) {
	err = g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = '`+horizonWait+`'`); err != nil {
			return fmt.Errorf("limit the wait: %w", err)
		}
		if _, err := tx.Exec(ctx, `lock table mutations in share mode`); err != nil {
			return fmt.Errorf("wait for writers: %w", err)
		}
		if err := tx.QueryRow(ctx, `select coalesce(max(id), 0) from mutations`).Scan(&horizon); err != nil {
			return fmt.Errorf("read the last mutation's id: %w", err)
		}
		return nil
	})
	return horizon, err
}

// lockPairs makes the transaction the only one that moves an integration's
// place in the scan.
func lockPairs(ctx context.Context, tx pgx.Tx, integration string) error {
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('hash pairs of ' || $1, 0))`, integration); err != nil {
		return fmt.Errorf("wait for another scan: %w", err)
	}
	return nil
}

// rewindPairs lets the next scan begin before a mutation: for one that the
// scan has passed and that turns out, on a person's word or a late look-up,
// to have been applied. It belongs in the transaction that settles it. What is
// scanned again is found again, and changes nothing.
func rewindPairs(ctx context.Context, tx pgx.Tx, integration string, mutationID int64) error {
	if err := lockPairs(ctx, tx, integration); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `update integrations set pairs_until = $2 where id = $1 and pairs_until > $2`, integration, mutationID-1)
	if err != nil {
		return fmt.Errorf("rewind the scan for hash pairs: %w", err)
	}
	return nil
}

// scanStep covers the next chunk; more says that another follows.
func (g *Gate) scanStep(ctx context.Context, tx pgx.Tx, by Actor, integration string, horizon int64) (s ScanResult, more bool, err error) {
	if err := lockPairs(ctx, tx, integration); err != nil {
		return s, false, err
	}
	if err := tx.QueryRow(ctx, `select pairs_until from integrations where id = $1`, integration).Scan(&s.From); err != nil {
		return s, false, fmt.Errorf("read where the last scan ended: %w", err)
	}
	var n int64
	err = tx.QueryRow(ctx, `
		with unsettled as (
			(select mutation_id from reservations where integration = $1 and state = 'in_flight')
			union all
			(select mutation_id from reservations where integration = $1 and state = 'unknown')
		), bound as (
			select least($3::bigint, coalesce((select min(mutation_id) - 1 from unsettled where mutation_id > $2), $3)) as id
		), chunk as (
			select m.id from mutations m where m.integration = $1 and m.id > $2 and m.id <= (select id from bound)
			order by m.id limit $4
		)
		select coalesce(max(id), $2), count(*) from chunk`, integration, s.From, horizon, scanChunk).Scan(&s.To, &n)
	if err != nil {
		return s, false, fmt.Errorf("find the end of the chunk: %w", err)
	}
	at := g.clock.Now()
	entries, err := findPairs(ctx, tx, integration, s, g.cfg.PairWindow, at, by)
	if err != nil {
		return s, false, err
	}
	s.Found = len(entries)
	_, err = tx.Exec(ctx, `update integrations set pairs_until = $2, pairs_at = $3 where id = $1`, integration, s.To, at)
	if err != nil {
		return s, false, fmt.Errorf("record where the scan ended: %w", err)
	}
	entries = append(entries, entry(at, by, integration, "pairs.scanned", integration,
		map[string]any{"from": s.From, "to": s.To, "found": s.Found}))
	return s, n == scanChunk, audit.Append(ctx, tx, entries...)
}

// findPairs inserts the new pairs of a chunk, each mutation with the nearest
// earlier one like it, and returns an audit entry for each. Compensations are
// left out: a person has seen and approved each of them.
func findPairs(ctx context.Context, tx pgx.Tx, integration string, s ScanResult, window time.Duration, at time.Time, by Actor) ([]audit.Entry, error) {
	return collect(ctx, tx, "look for hash pairs", func(row pgx.CollectableRow) (audit.Entry, error) {
		var id, first, second int64
		err := row.Scan(&id, &first, &second)
		return entry(at, by, integration, "pair.found", pairName(id),
			map[string]any{"first": mutationName(first), "second": mutationName(second)}), err
	}, `
		insert into hash_pairs (integration, first_mutation, second_mutation, fingerprint, subject, found_at, state)
		select n.integration, f.id, n.id, n.fingerprint, n.subject, $5, 'open'
		from mutations n
		join reservations nr on nr.mutation_id = n.id and nr.state = 'committed'
		cross join lateral (
			select e.id
			from mutations e
			join reservations er on er.mutation_id = e.id and er.state = 'committed'
			where e.integration = n.integration and e.fingerprint = n.fingerprint and e.forwarded and e.id < n.id
			  and e.received_at >= n.received_at - $4::interval and e.rollback_id is null
			  and (e.account <> n.account or e.event_id <> n.event_id or e.natural_key = n.natural_key or e.run <> n.run)
			order by e.id desc limit 1
		) f
		where n.integration = $1 and n.id > $2 and n.id <= $3 and n.forwarded and n.rollback_id is null
		order by n.id
		on conflict (first_mutation, second_mutation) do nothing
		returning id, first_mutation, second_mutation`,
		integration, s.From, s.To, window, at)
}

// RequestScan asks for a scan soon, by a job; a request while one waits adds
// nothing.
func (g *Gate) RequestScan(ctx context.Context, by Actor, integration string) error {
	if _, err := g.Integration(ctx, integration); err != nil {
		return err
	}
	if g.jobs == nil {
		return fmt.Errorf("no job client is set, so nothing can be scheduled: %w", ErrUnavailable)
	}
	return g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := g.jobs.InsertTx(ctx, tx, scanArgs{Integration: integration, By: by.Name, ByKind: by.Kind}, nil); err != nil {
			return fmt.Errorf("schedule a scan of %q: %w", integration, err)
		}
		return audit.Append(ctx, tx, entry(g.clock.Now(), by, integration, "pairs.requested", integration, nil))
	})
}

// LastScan is when the last scan of an integration ended; zero when there was none.
func (g *Gate) LastScan(ctx context.Context, integration string) (time.Time, error) {
	var at *time.Time
	err := g.pool.QueryRow(ctx, `select pairs_at from integrations where id = $1`, integration).Scan(&at)
	if noRows(err) {
		return time.Time{}, fmt.Errorf("integration %q: %w", integration, ErrNotFound)
	}
	if err != nil {
		return time.Time{}, storeError(fmt.Errorf("read the last scan of %q: %w", integration, err))
	}
	return utc(at), nil
}
