package gate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

const integrationColumns = `id, name, mode, frozen, max_skew, version, updated_at, updated_by`

func scanIntegration(row pgx.CollectableRow) (Integration, error) {
	var i Integration
	err := row.Scan(&i.ID, &i.Name, &i.Mode, &i.Frozen, &i.MaxSkew, &i.Version, &i.UpdatedAt, &i.UpdatedBy)
	return i, err
}

// Integrations lists all integrations by id.
func (g *Gate) Integrations(ctx context.Context) ([]Integration, error) {
	rows, err := g.pool.Query(ctx, `select `+integrationColumns+` from integrations order by id`)
	if err != nil {
		return nil, storeError(fmt.Errorf("list integrations: %w", err))
	}
	list, err := pgx.CollectRows(rows, scanIntegration)
	if err != nil {
		return nil, storeError(fmt.Errorf("list integrations: %w", err))
	}
	return list, nil
}

// Integration returns one integration, or ErrNotFound.
func (g *Gate) Integration(ctx context.Context, id string) (Integration, error) {
	rows, err := g.pool.Query(ctx, `select `+integrationColumns+` from integrations where id = $1`, id)
	if err != nil {
		return Integration{}, storeError(fmt.Errorf("integration %q: %w", id, err))
	}
	i, err := pgx.CollectExactlyOneRow(rows, scanIntegration)
	if errors.Is(err, pgx.ErrNoRows) {
		return i, fmt.Errorf("integration %q: %w", id, ErrNotFound)
	}
	if err != nil {
		return i, storeError(fmt.Errorf("integration %q: %w", id, err))
	}
	return i, nil
}

// EnsureIntegration creates the integration unless it exists. An existing one
// keeps its mode.
func (g *Gate) EnsureIntegration(ctx context.Context, by Actor, i Integration) error {
	if !i.Mode.Valid() {
		return fmt.Errorf("integration %q: mode %q is not one of off, shadow, enforce: %w", i.ID, i.Mode, ErrMalformed)
	}
	at := g.clock.Now()
	return g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			insert into integrations (id, name, mode, frozen, max_skew, created_at, updated_at, updated_by)
			values ($1, $2, $3, $4, $5, $6, $6, $7) on conflict (id) do nothing`,
			i.ID, i.Name, i.Mode, i.Frozen, i.MaxSkew, at, by.Name)
		if err != nil {
			return fmt.Errorf("create integration %q: %w", i.ID, err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
		return audit.Append(ctx, tx, entry(at, by, i.ID, "integration.created", i.ID, map[string]any{"mode": string(i.Mode)}))
	})
}

// SetMode switches the gate for an integration. It is bound to the version the
// person saw: ErrStale when somebody changed it since.
func (g *Gate) SetMode(ctx context.Context, by Actor, id string, mode Mode, version int64, note string) error {
	if !mode.Valid() {
		return fmt.Errorf("mode %q is not one of off, shadow, enforce: %w", mode, ErrMalformed)
	}
	return g.changeIntegration(ctx, by, id, version, "integration.mode", `mode = $4`, string(mode),
		map[string]any{"mode": string(mode), "note": note})
}

// SetFrozen freezes an integration (everything new is held) or thaws it.
func (g *Gate) SetFrozen(ctx context.Context, by Actor, id string, frozen bool, version int64, note string) error {
	return g.changeIntegration(ctx, by, id, version, "integration.frozen", `frozen = $4`, frozen,
		map[string]any{"frozen": frozen, "note": note})
}

// changeIntegration sets one column by compare-and-set on the version, with
// its audit record.
func (g *Gate) changeIntegration(ctx context.Context, by Actor, id string, version int64, action, set string, value any, detail map[string]any) error {
	at := g.clock.Now()
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update integrations set `+set+`, version = version + 1, updated_at = $5, updated_by = $3
			where id = $1 and version = $2`, id, version, by.Name, value, at)
		if err != nil {
			return fmt.Errorf("change integration %q: %w", id, err)
		}
		if tag.RowsAffected() == 0 {
			return g.whyNotChanged(ctx, tx, id)
		}
		return audit.Append(ctx, tx, entry(at, by, id, action, id, detail))
	})
	if err == nil {
		g.Touch(id, "signals")
	}
	return err
}

func (g *Gate) whyNotChanged(ctx context.Context, tx pgx.Tx, id string) error {
	var e DecidedError
	var mode Mode
	err := tx.QueryRow(ctx, `select mode, updated_by, updated_at from integrations where id = $1`, id).Scan(&mode, &e.By, &e.At)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("integration %q: %w", id, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("integration %q: %w", id, err)
	}
	e.What, e.State = id, string(mode)
	return &e
}

// Baseline adopts the target's live state into the projection, for entities
// that the projection does not hold yet. It returns how many it adopted.
func (g *Gate) Baseline(ctx context.Context, by Actor, integration string) (int, error) {
	target, err := g.Target(integration)
	if err != nil {
		return 0, err
	}
	adopted, cursor := 0, ""
	for {
		page, next, err := target.Live(ctx, cursor, 1000)
		if err != nil {
			return adopted, fmt.Errorf("read the live state of %q: %w", integration, err)
		}
		n, err := g.adopt(ctx, by, integration, page)
		if err != nil {
			return adopted, err
		}
		if adopted += n; next == "" {
			return adopted, nil
		}
		cursor = next
	}
}

func (g *Gate) adopt(ctx context.Context, by Actor, integration string, page []Entity) (n int, err error) {
	at := g.clock.Now()
	err = g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		batch := &pgx.Batch{}
		for _, e := range page {
			batch.Queue(`
				insert into entities (integration, type, id, version, target_version, state, subject, updated_at)
				values ($1, $2, $3, 1, $4, $5, $6, $7) on conflict (integration, type, id) do nothing`,
				integration, e.Type, e.ID, e.Version, []byte(e.State), g.subjectOf(integration, e), at).
				Exec(func(tag pgconnTag) error { n += int(tag.RowsAffected()); return nil })
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("adopt the live state of %q: %w", integration, err)
		}
		return audit.Append(ctx, tx, entry(at, by, integration, "baseline.adopted", integration, map[string]any{"entities": n}))
	})
	return n, err
}

// subjectOf finds whom a live entity concerns, for search and grouping.
func (g *Gate) subjectOf(integration string, e Entity) string {
	name := g.cfg.SubjectFields[integration]
	fields, err := Fields(e.State)
	if err != nil || name == "" {
		return ""
	}
	return Text(fields[name])
}
