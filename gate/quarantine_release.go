package gate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// NotDueError says that a release is not to be finished yet: its undo window
// is open, or another worker is at it.
type NotDueError struct {
	Item  int64
	Until time.Time
}

func (e *NotDueError) Error() string {
	return fmt.Sprintf("%s is not to be finished before %s", itemName(e.Item), e.Until.Format(time.RFC3339Nano))
}

// claim is a worker's right to finish one release. The item's version at the
// claim is its fencing number: a worker that was overtaken writes nothing.
type claim struct {
	item    Item
	version int64
	until   time.Time
}

// FinishRelease sends what a person released, once its undo window is over,
// and records the outcome. It may be called any number of times, by several
// processes and after a crash at any point: the reservation's key is taken
// from the item, so that it is sent at most once, and a repeat is answered
// from that reservation. An item whose basis moved since the decision, or
// whose key a rollback closed, becomes superseded and is not sent. Nil when
// there is nothing left to do; *NotDueError when it is to be called again.
func (g *Gate) FinishRelease(ctx context.Context, id int64) error {
	var c *claim
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		c, err = g.claimRelease(ctx, tx, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("finish the release of %s: %w", itemName(id), err)
	}
	if c == nil {
		return nil
	}
	if c.item.Mutation != nil {
		if err := g.sendReleased(ctx, *c); err != nil {
			return fmt.Errorf("finish the release of %s: %w", itemName(id), err)
		}
	}
	g.touchItem(c.item.Integration)
	return nil
}

// claimRelease takes the item for one worker. A delivery is handed on at once,
// in the same transaction; a mutation is sent after the claim has committed.
// No claim means that the item was decided otherwise or is finished.
func (g *Gate) claimRelease(ctx context.Context, tx pgx.Tx, id int64) (*claim, error) {
	now := g.clock.Now()
	rows, err := collect(ctx, tx, "lock the item", scanItem, itemSelect+` where q.id = $1 for update of q`, id)
	w, err := only(rows, err, itemName(id))
	switch {
	case err != nil:
		return nil, err
	case w.it.State != ItemReleasing:
		return nil, nil
	case now.Before(w.it.ReleaseAt):
		return nil, &NotDueError{id, w.it.ReleaseAt}
	case w.claimedUntil != nil && now.Before(*w.claimedUntil):
		return nil, &NotDueError{id, w.claimedUntil.UTC()}
	}
	items, err := fillItems(ctx, tx, w.it.Integration, []itemRow{w})
	if err != nil {
		return nil, err
	}
	c := &claim{item: items[0], version: w.it.Version, until: now.Add(g.cfg.StaleAfter)}
	why, err := g.whySuperseded(ctx, tx, w, c.item)
	if err != nil {
		return nil, err
	}
	switch {
	case why != "":
		return c.done(g.finish(ctx, tx, *c, ItemSuperseded, why, 0))
	case c.item.Delivery != nil:
		return c.done(g.handOn(ctx, tx, *c))
	}
	err = tx.QueryRow(ctx, `update quarantine_items set claimed_until = $2, version = version + 1 where id = $1 returning version`,
		id, c.until).Scan(&c.version)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return c, nil
}

// done is the claim of an item that needs no sending any more.
func (c *claim) done(err error) (*claim, error) {
	c.item.Mutation = nil
	return c, err
}

// whySuperseded says, in words for the record, why the item must not be sent
// as it was approved; empty when it may. Once its key is reserved the question
// is settled: what was sent was sent, and moved the entity itself.
func (g *Gate) whySuperseded(ctx context.Context, tx pgx.Tx, w itemRow, it Item) (string, error) {
	var reserved bool
	var closed, version int64
	var err error
	if it.Mutation != nil {
		m := it.Mutation
		key := releaseKey(*m, it.ID)
		err = tx.QueryRow(ctx, `
			select exists (select 1 from reservations where key = $1),
			       coalesce((select rollback_id from tombstones where integration = $2 and natural_key = $3), 0),
			       coalesce((select version from entities where integration = $2 and type = $4 and id = $5), 0)`,
			key[:], it.Integration, m.NaturalKey[:], m.Mutation.Type, m.Mutation.ID).Scan(&reserved, &closed, &version)
	} else {
		err = tx.QueryRow(ctx, `select coalesce((select rollback_id from events where seq = $1), 0)`, it.Delivery.EventSeq).Scan(&closed)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("look whether the item still holds: %w", err)
	case reserved:
		return "", nil
	case closed != 0 && it.Reason != ReasonRolledBack:
		return fmt.Sprintf("superseded: closed by rollback R-%d", closed), nil
	case version != w.entityVersion:
		return fmt.Sprintf("superseded: the entity moved from version %d to %d", w.entityVersion, version), nil
	}
	return "", nil
}

// releaseKey is the key that a release is sent under: the natural one, or the
// item's own where the hold was about the natural key.
func releaseKey(m MutationRecord, item int64) Key {
	if m.NaturalKey == (Key{}) || m.Reason == ReasonKeyConflict || m.Reason == ReasonRolledBack {
		return DerivedKey("release", m.Integration, strconv.FormatInt(item, 10))
	}
	return m.NaturalKey
}

// handOn makes a held delivery's event available to the agent.
func (g *Gate) handOn(ctx context.Context, tx pgx.Tx, c claim) error {
	err := g.handOnReleased(ctx, tx, *c.item.Delivery)
	switch {
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrNotFound):
		return g.finish(ctx, tx, c, ItemSuperseded, "superseded: "+err.Error(), 0)
	case err != nil:
		return err
	}
	return g.finish(ctx, tx, c, ItemReleased, "stored", 0)
}

// sendReleased sends under the claim and records the outcome. When the outcome
// cannot be told now, the claim is left to end, and the next worker learns it
// from the reservation.
func (g *Gate) sendReleased(ctx context.Context, c claim) error {
	d, err := g.forwardReleased(ctx, Person(c.item.DecidedBy), *c.item.Mutation, c.item.ID)
	switch {
	case errors.Is(err, ErrInFlight):
		return &NotDueError{c.item.ID, c.until}
	case err != nil:
		return errors.Join(err, g.endClaim(ctx, c))
	}
	state, outcome := ItemReleased, string(d.State)
	if d.Verdict == Quarantine {
		state, outcome = ItemSuperseded, "superseded"
	}
	if d.Detail != "" {
		outcome += ": " + truncate(d.Detail)
	}
	return g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return g.finish(ctx, tx, c, state, outcome, d.MutationID)
	})
}

// endClaim lets another worker try at once. The item cannot be undone any more.
func (g *Gate) endClaim(ctx context.Context, c claim) error {
	return g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update quarantine_items set claimed_until = $3 where id = $1 and version = $2 and state = 'releasing'`,
			c.item.ID, c.version, g.clock.Now())
		if err != nil {
			return fmt.Errorf("end the claim: %w", err)
		}
		return nil
	})
}

// finish closes the item, unless another worker overtook this one.
func (g *Gate) finish(ctx context.Context, tx pgx.Tx, c claim, state ItemState, outcome string, mutation int64) error {
	tag, err := tx.Exec(ctx, `
		update quarantine_items set state = $3, outcome = $4, released_mutation = nullif($5::bigint, 0), version = version + 1
		where id = $1 and version = $2 and state = 'releasing'`, c.item.ID, c.version, state, outcome, mutation)
	if err != nil {
		return fmt.Errorf("record the outcome: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	detail := map[string]any{"outcome": outcome, "decided_by": c.item.DecidedBy}
	if mutation != 0 {
		detail["mutation"] = mutationName(mutation)
	}
	return audit.Append(ctx, tx, entry(g.clock.Now(), Job("release"), c.item.Integration, "item."+string(state), itemName(c.item.ID), detail))
}

// sweepReleases finishes releases whose time has come and that no job or
// worker has under way: what a crash left.
func (g *Gate) sweepReleases(ctx context.Context) error {
	ids, err := collect(ctx, g.pool, "find overdue releases", pgx.RowTo[int64], `
		select id from quarantine_items
		where state = 'releasing' and release_at <= $1 and (claimed_until is null or claimed_until <= $1)
		order by id limit $2`, g.clock.Now(), largestPage)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		var notDue *NotDueError
		if err := g.FinishRelease(ctx, id); err != nil && !errors.As(err, &notDue) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
