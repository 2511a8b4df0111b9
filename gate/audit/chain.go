package audit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier is what reads need: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Head is where the chain ends, or ended: the position and hash of its last
// record. The zero Head is the start of an empty chain.
type Head struct {
	Pos  int64
	Hash [32]byte
}

// Record is one stored entry.
type Record struct {
	ID          int64
	Pos         int64 // in the chain; 0 when it is not linked yet
	Hash        [32]byte
	At          time.Time
	ActorKind   string
	Actor       string
	Integration string
	Action      string
	Object      string
	Detail      json.RawMessage
}

// chainDomain names the encoding that is hashed. A change of the encoding or
// of the columns takes a new version.
const chainDomain = "sluis audit record v1"

// link is the hash of r behind prev: SHA-256 over the domain, prev and every
// column, each behind its length. The time counts in microseconds, which is
// what the column holds.
func (r Record) link(prev [32]byte) [32]byte {
	h := sha256.New()
	part := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	number := func(n int64) {
		part(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	part([]byte(chainDomain))
	part(prev[:])
	number(r.ID)
	number(r.At.UnixMicro())
	for _, s := range []string{r.ActorKind, r.Actor, r.Integration, r.Action, r.Object} {
		part([]byte(s))
	}
	part(r.Detail)
	return [32]byte(h.Sum(nil))
}

// CurrentHead is the end of the chain as it stands.
func CurrentHead(ctx context.Context, q Querier) (Head, error) {
	var h Head
	var hash []byte
	err := q.QueryRow(ctx, "select pos, hash from audit_links order by pos desc limit 1").Scan(&h.Pos, &hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return Head{}, nil
	}
	if err != nil {
		return Head{}, fmt.Errorf("read the audit head: %w", err)
	}
	h.Hash = [32]byte(hash)
	return h, nil
}

// columns lists a record r and its link l, as scanRecord reads them.
const columns = `r.id, coalesce(l.pos, 0), l.hash, r.at, r.actor_kind, r.actor, r.integration, r.action, r.object, r.detail`

func scanRecord(row pgx.CollectableRow) (Record, error) {
	var r Record
	var hash, detail []byte
	err := row.Scan(&r.ID, &r.Pos, &hash, &r.At, &r.ActorKind, &r.Actor, &r.Integration, &r.Action, &r.Object, &detail)
	if err != nil {
		return Record{}, err
	}
	if hash != nil {
		r.Hash = [32]byte(hash)
	}
	r.At = r.At.UTC()
	r.Detail = detail
	return r, nil
}
