package gate

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"sluis/gate/audit"
)

// maxNote is the length of a person's note, in characters.
const maxNote = 2000

// checkNote trims a note and refuses one that is empty, too long or not storable.
func checkNote(note string) (string, error) {
	note = strings.TrimSpace(note)
	switch {
	case note == "":
		return "", fmt.Errorf("a note is required: say why: %w", ErrMalformed)
	case !storable(note):
		return "", fmt.Errorf("the note holds what cannot be stored: %w", ErrMalformed)
	case utf8.RuneCountInString(note) > maxNote:
		return "", fmt.Errorf("the note is longer than %d characters: %w", maxNote, ErrMalformed)
	}
	return note, nil
}

// Release decides that a held mutation or delivery goes through after all. It
// is sent after UndoWindow, until when UndoRelease takes it back. version is
// what the person saw: whoever decided earlier wins, and this call gets a
// *DecidedError that says who, what and when. ErrStale when the item moved
// without a decision, ErrNotFound, and ErrMalformed without a note or for a
// delivery that no agent could read.
func (g *Gate) Release(ctx context.Context, by Actor, id, version int64, note string) (Item, error) {
	note, err := checkNote(note)
	if err != nil {
		return Item{}, err
	}
	at := g.clock.Now()
	due := at.Add(g.cfg.UndoWindow)
	return g.changeItem(ctx, itemChange{
		by: by, id: id, version: version, at: at, action: "item.releasing",
		set: `state = 'releasing', decided_at = @at, decided_by = @by, note = @note, release_at = @due,
			entity_version = (select e.version from mutations m
				join entities e on e.integration = m.integration and e.type = m.entity_type and e.id = m.entity_id
				where m.id = q.mutation_id)`,
		where:  `q.state = 'open'`,
		args:   pgx.NamedArgs{"note": note, "due": due},
		detail: map[string]any{"note": note, "release_at": due.Format(time.RFC3339Nano)},
		then: func(ctx context.Context, tx pgx.Tx, it Item) error {
			if it.Delivery != nil && (it.Reason == ReasonMalformedBody || it.Reason == ReasonUnsafeNumber) {
				return fmt.Errorf("%s cannot be read, so no agent could act on it; reject it: %w", itemName(id), ErrMalformed)
			}
			return g.enqueueRelease(ctx, tx, id, due)
		},
	})
}

// enqueueRelease schedules the job that finishes the release. Where no job
// client is set, the sweep of another process does.
func (g *Gate) enqueueRelease(ctx context.Context, tx pgx.Tx, id int64, due time.Time) error {
	if g.jobs == nil {
		return nil
	}
	if _, err := g.jobs.InsertTx(ctx, tx, releaseArgs{Item: id}, &river.InsertOpts{ScheduledAt: due}); err != nil {
		return fmt.Errorf("schedule the release of %s: %w", itemName(id), err)
	}
	return nil
}

// UndoRelease takes a release back before its time has come and opens the item
// again. A *DecidedError says that it is too late.
func (g *Gate) UndoRelease(ctx context.Context, by Actor, id, version int64) (Item, error) {
	return g.changeItem(ctx, itemChange{
		by: by, id: id, version: version, at: g.clock.Now(), action: "item.undone",
		set:   `state = 'open', decided_at = null, decided_by = null, note = '', release_at = null, entity_version = null`,
		where: `q.state = 'releasing' and q.claimed_until is null and q.release_at > @at`,
	})
}

// Reject decides that a held mutation or delivery does not go through. The
// errors are those of Release.
func (g *Gate) Reject(ctx context.Context, by Actor, id, version int64, note string) (Item, error) {
	note, err := checkNote(note)
	if err != nil {
		return Item{}, err
	}
	return g.changeItem(ctx, itemChange{
		by: by, id: id, version: version, at: g.clock.Now(), action: "item.rejected",
		set:    `state = 'rejected', decided_at = @at, decided_by = @by, note = @note`,
		where:  `q.state = 'open'`,
		args:   pgx.NamedArgs{"note": note},
		detail: map[string]any{"note": note},
		then: func(ctx context.Context, tx pgx.Tx, it Item) error {
			if it.Delivery == nil || it.Delivery.EventSeq == 0 {
				return nil
			}
			_, err := tx.Exec(ctx, `update events set state = 'rejected' where seq = $1 and state = 'quarantined'`, it.Delivery.EventSeq)
			if err != nil {
				return fmt.Errorf("reject the event of %s: %w", itemName(id), err)
			}
			return nil
		},
	})
}

// itemChange is one person's decision on an item.
type itemChange struct {
	by          Actor
	id, version int64
	at          time.Time
	action      string // of the audit record
	set, where  string // SQL over quarantine_items q; @at, @by and args are set
	args        pgx.NamedArgs
	detail      map[string]any
	then        func(context.Context, pgx.Tx, Item) error // in the same transaction; nil for nothing
}

// changeItem moves an item by compare-and-set on its version and state, with
// its audit record, and returns it as it is then.
func (g *Gate) changeItem(ctx context.Context, c itemChange) (Item, error) {
	args := pgx.NamedArgs{"id": c.id, "version": c.version, "at": c.at, "by": c.by.Name}
	for name, value := range c.args {
		args[name] = value
	}
	var it Item
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update quarantine_items q set version = q.version + 1, `+c.set+`
			where q.id = @id and q.version = @version and `+c.where, args)
		if err != nil {
			return fmt.Errorf("decide %s: %w", itemName(c.id), err)
		}
		if tag.RowsAffected() == 0 {
			return whyNotDecided(ctx, tx, c.id)
		}
		if it, err = readItem(ctx, tx, c.id); err != nil {
			return err
		}
		if c.then != nil {
			if err := c.then(ctx, tx, it); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, entry(c.at, c.by, it.Integration, c.action, itemName(c.id), c.detail))
	})
	if err != nil {
		return Item{}, err
	}
	g.touchItem(it.Integration)
	return it, nil
}

func (g *Gate) touchItem(integration string) {
	g.Touch(integration, "items")
	g.Touch(integration, "signals")
}

// whyNotDecided tells a caller that lost: to whom, or that the item moved.
func whyNotDecided(ctx context.Context, tx pgx.Tx, id int64) error {
	var state, by string
	var at *time.Time
	err := tx.QueryRow(ctx, `select state, coalesce(decided_by, ''), decided_at from quarantine_items where id = $1`, id).Scan(&state, &by, &at)
	switch {
	case noRows(err):
		return fmt.Errorf("%s: %w", itemName(id), ErrNotFound)
	case err != nil:
		return fmt.Errorf("look at %s: %w", itemName(id), err)
	case at == nil:
		return fmt.Errorf("%s was opened again: %w", itemName(id), ErrStale)
	}
	return &DecidedError{What: itemName(id), State: state, By: by, At: at.UTC()}
}
