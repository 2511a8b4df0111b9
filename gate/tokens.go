package gate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// tokenPrefix makes a leaked token recognisable to a scanner.
const tokenPrefix = "slu_"

// CreateToken makes a bearer token for an agent of an integration and returns
// it. Only its digest is kept, so it is shown once. ErrMalformed for an agent
// without a name, ErrNotFound for an unknown integration.
func (g *Gate) CreateToken(ctx context.Context, by Actor, integration, agent string) (string, error) {
	if agent == "" || len(agent) > maxName || !cleanText(agent) {
		return "", fmt.Errorf("name the agent in up to %d bytes of plain text: %w", maxName, ErrMalformed)
	}
	if _, err := g.Integration(ctx, integration); err != nil {
		return "", err
	}
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	digest := sha256.Sum256([]byte(token))
	at := g.clock.Now()
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			insert into agent_tokens (token_hash, integration, agent, created_at, created_by) values ($1, $2, $3, $4, $5)`,
			digest[:], integration, agent, at, by.Name)
		if err != nil {
			return fmt.Errorf("keep the token of %q: %w", agent, err)
		}
		return audit.Append(ctx, tx, entry(at, by, integration, "token.created", "agent/"+agent,
			map[string]any{"digest_begins": hex.EncodeToString(digest[:4])}))
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// ResolveToken names the agent and integration that a bearer token stands
// for; ErrNotFound when there is none, or it was revoked.
func (g *Gate) ResolveToken(ctx context.Context, token string) (agent, integration string, err error) {
	if !strings.HasPrefix(token, tokenPrefix) {
		return "", "", fmt.Errorf("no such token: %w", ErrNotFound)
	}
	digest := sha256.Sum256([]byte(token))
	err = g.pool.QueryRow(ctx, `select agent, integration from agent_tokens where token_hash = $1 and revoked_at is null`, digest[:]).
		Scan(&agent, &integration)
	if noRows(err) {
		return "", "", fmt.Errorf("no such token: %w", ErrNotFound)
	}
	if err != nil {
		return "", "", storeError(fmt.Errorf("look up a token: %w", err))
	}
	return agent, integration, nil
}

// RevokeTokens ends all tokens of an agent at once and returns how many;
// ErrNotFound when it has none.
func (g *Gate) RevokeTokens(ctx context.Context, by Actor, integration, agent string) (int, error) {
	at := g.clock.Now()
	var n int64
	err := g.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update agent_tokens set revoked_at = $3 where integration = $1 and agent = $2 and revoked_at is null`,
			integration, agent, at)
		if err != nil {
			return fmt.Errorf("revoke the tokens of %q: %w", agent, err)
		}
		if n = tag.RowsAffected(); n == 0 {
			return fmt.Errorf("%q has no token: %w", agent, ErrNotFound)
		}
		return audit.Append(ctx, tx, entry(at, by, integration, "token.revoked", "agent/"+agent, map[string]any{"tokens": n}))
	})
	return int(n), err
}
