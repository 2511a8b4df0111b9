package snapshots

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PublicKeyFile is where LoadOrCreateKeys leaves the public half.
const PublicKeyFile = publicFile

// ParseHead reads a head as people note it down: SEQ:HASH.
func ParseHead(text string) (Head, error) {
	seq, hash, ok := strings.Cut(text, ":")
	n, err := strconv.ParseInt(seq, 10, 64)
	raw, hexErr := hex.DecodeString(hash)
	if !ok || err != nil || n < 1 || hexErr != nil || len(raw) != len(Hash{}) {
		return Head{}, errors.New("a head is SEQ:HASH, such as 12:9f86d081…, with 64 hexadecimal digits")
	}
	return Head{Seq: n, Hash: Hash(raw)}, nil
}

// RecordedHeads is where the database says that each chain ends, by
// integration: kept apart from the store, it shows a cut tail.
func RecordedHeads(ctx context.Context, conn *pgx.Conn) (map[string]*Head, error) {
	rows, err := conn.Query(ctx, `
		select distinct on (integration) integration, seq, manifest_hash from snapshots order by integration, seq desc`)
	if err != nil {
		return nil, fmt.Errorf("recorded heads: %w", err)
	}
	heads := map[string]*Head{}
	var id string
	var seq int64
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &seq, &hash}, func() error {
		heads[id] = &Head{Seq: seq, Hash: Hash(hash)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("recorded heads: %w", err)
	}
	return heads, nil
}
