package gate

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// Acknowledge records that a named person has seen the drops up to a decision
// id, which is Signal.UpTo as the person saw it: later drops make the row red
// again. Only the drops can be acknowledged; the other signals go when their
// cause does. A *DecidedError says that somebody acknowledged as much before;
// ErrMalformed for another signal, an id that no drop has reached, or a note
// that is too long. The note may be empty.
func (g *Gate) Acknowledge(ctx context.Context, by Actor, integration, signal string, upto int64, note string) error {
	note = strings.TrimSpace(note)
	switch {
	case signal != SignalDrops:
		return fmt.Errorf("the signal %q cannot be acknowledged, only %q: %w", signal, SignalDrops, ErrMalformed)
	case !storable(note) || utf8.RuneCountInString(note) > maxNote:
		return fmt.Errorf("the note is longer than %d characters or holds what cannot be stored: %w", maxNote, ErrMalformed)
	}
	at := g.clock.Now()
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var reached bool
		err := tx.QueryRow(ctx, `select exists (select 1 from decisions where integration = $1 and decision = 'drop' and id >= $2)`,
			integration, upto).Scan(&reached)
		if err != nil {
			return fmt.Errorf("look for the drops to acknowledge: %w", err)
		}
		if !reached || upto <= 0 {
			return fmt.Errorf("there are no drops up to %d: %w", upto, ErrMalformed)
		}
		tag, err := tx.Exec(ctx, `
			insert into acknowledgements (integration, signal, upto, at, by, note) values ($1, $2, $3, $4, $5, $6)
			on conflict (integration, signal) do update set upto = excluded.upto, at = excluded.at, by = excluded.by, note = excluded.note
			where acknowledgements.upto < excluded.upto`, integration, signal, upto, at, by.Name, note)
		if err != nil {
			return fmt.Errorf("acknowledge the drops: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return whoAcknowledged(ctx, tx, integration, signal)
		}
		return audit.Append(ctx, tx, entry(at, by, integration, "drops.acknowledged", integration,
			map[string]any{"upto": upto, "note": note}))
	})
	if err == nil {
		g.Touch(integration, "signals")
	}
	return err
}

func whoAcknowledged(ctx context.Context, tx pgx.Tx, integration, signal string) error {
	e := DecidedError{What: signal, State: "acknowledged"}
	var at time.Time
	err := tx.QueryRow(ctx, `select by, at from acknowledgements where integration = $1 and signal = $2`, integration, signal).Scan(&e.By, &at)
	if err != nil {
		return fmt.Errorf("look who acknowledged: %w", err)
	}
	e.At = at.UTC()
	return &e
}
