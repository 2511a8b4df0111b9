package snapshots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

const (
	// writersLimit bounds the wait for transactions that took a number before
	// the snapshot and commit after it. They last milliseconds.
	writersLimit = 10 * time.Second
	writersPoll  = 5 * time.Millisecond
)

// capture is a consistent read of one integration: its projection, and where
// in the sequence of mutations and in the audit record it stands.
type capture struct {
	body     sealedBody
	position Position
	audit    AuditHead
}

// view is what the capture's transaction could see of the mutations after the
// snapshot before.
type view struct {
	after   int64   // the position of the snapshot before
	last    int64   // the highest mutation whose effect is inside
	open    []int64 // reserved and not settled
	visible []int64 // all mutations in (after, last]
	writers []string
}

// capture reads in one REPEATABLE READ transaction, so that lines, position
// and audit head are of one moment.
//
// A mutation gets its number before its transaction commits. One with a lower
// number than last may thus have been invisible, and settle later; left out of
// the position it would be lost to every replay. So after the read those that
// were writing at that moment are waited for, and whatever numbers up to last
// exist then and were not visible are open too. Nothing is locked: the gate
// does not notice.
func (s *Service) capture(ctx context.Context, integration string, after int64) (capture, error) {
	if _, err := audit.Link(ctx, s.pool); err != nil {
		return capture{}, err
	}
	var c capture
	var v view
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) (err error) {
			if v, err = readView(ctx, tx, integration, after); err != nil {
				return err
			}
			head, err := audit.CurrentHead(ctx, tx)
			if err != nil {
				return err
			}
			c.audit = AuditHead{Hash: head.Hash, Pos: head.Pos}
			c.body, err = readBody(ctx, tx, integration)
			return err
		})
	if err != nil {
		return c, fmt.Errorf("read the world of %s: %w", integration, err)
	}
	if err := s.awaitWriters(ctx, v.writers); err != nil {
		return c, err
	}
	c.position, err = s.settlePosition(ctx, integration, v)
	return c, err
}

// readView fixes the transaction's snapshot with its first statement, and only
// then reads who is writing: pg_locks is live, and a writer's lock outlasts
// the moment at which its rows become visible.
func readView(ctx context.Context, tx pgx.Tx, integration string, after int64) (view, error) {
	v := view{after: after}
	err := tx.QueryRow(ctx, `
		select coalesce((
				select m.id from mutations m join reservations r on r.mutation_id = m.id
				where m.integration = $1 and m.id > $2 and r.state in ('committed', 'rolled_back')
				order by m.id desc limit 1), $2),
			array(
				select mutation_id from reservations where integration = $1 and state = 'in_flight'
				union all
				select mutation_id from reservations where integration = $1 and state in ('unknown', 'manual'))`,
		integration, after).Scan(&v.last, &v.open)
	if err != nil {
		return v, fmt.Errorf("read the position: %w", err)
	}
	err = tx.QueryRow(ctx, `
		select array(select id from mutations where integration = $1 and id > $2 and id <= $3),
			array(
				select virtualtransaction from pg_locks
				where locktype = 'relation' and relation = 'mutations'::regclass and mode = 'RowExclusiveLock' and granted
				  and database = (select oid from pg_database where datname = current_database()))`,
		integration, v.after, v.last).Scan(&v.visible, &v.writers)
	if err != nil {
		return v, fmt.Errorf("read who is writing: %w", err)
	}
	return v, nil
}

// awaitWriters returns when each of these transactions has ended.
func (s *Service) awaitWriters(ctx context.Context, writers []string) error {
	if len(writers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writersLimit)
	defer cancel()
	tick := time.NewTicker(writersPoll)
	defer tick.Stop()
	for {
		var n int
		err := s.pool.QueryRow(ctx, `
			select count(*) from pg_locks
			where locktype = 'relation' and relation = 'mutations'::regclass and mode = 'RowExclusiveLock' and granted
			  and database = (select oid from pg_database where datname = current_database())
			  and virtualtransaction = any ($1)`, writers).Scan(&n)
		if err == nil && n == 0 {
			return nil
		}
		if err == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		return fmt.Errorf("wait for %d transactions that are recording mutations: %w", len(writers), err)
	}
}

// settlePosition adds the mutations up to last that were not visible.
func (s *Service) settlePosition(ctx context.Context, integration string, v view) (Position, error) {
	rows, err := s.pool.Query(ctx, `
		select id from mutations
		where integration = $1 and id > $2 and id <= $3 and forwarded
		  and id not in (select unnest($4::bigint[]))`, integration, v.after, v.last, v.visible)
	if err != nil {
		return Position{}, fmt.Errorf("read late mutations: %w", err)
	}
	late, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return Position{}, fmt.Errorf("read late mutations: %w", err)
	}
	p := Position{Last: v.last, Open: late}
	for _, id := range v.open {
		if id <= v.last {
			p.Open = append(p.Open, id)
		}
	}
	slices.Sort(p.Open)
	return p, nil
}

// readBody streams the projection, in byte order whatever the database's collation.
func readBody(ctx context.Context, tx pgx.Tx, integration string) (sealedBody, error) {
	w, err := newBodyWriter()
	if err != nil {
		return sealedBody{}, err
	}
	rows, err := tx.Query(ctx, `
		select type, id, version, state, subject, coalesce(last_mutation, 0)
		from entities
		where integration = $1 and not deleted
		order by type collate "C", id collate "C"`, integration)
	if err != nil {
		return sealedBody{}, fmt.Errorf("read entities: %w", err)
	}
	var e Entity
	_, err = pgx.ForEachRow(rows, []any{&e.Type, &e.ID, &e.Version, (*[]byte)(&e.State), &e.Subject, &e.LastMutation},
		func() error { return w.add(e) })
	if err != nil {
		return sealedBody{}, errors.Join(fmt.Errorf("read entities: %w", err), w.zip.Close())
	}
	return w.finish()
}
