package snapshots

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"

	"sluis/gate"
)

// planHash is the SHA-256 of canonical JSON that says what a plan means: the
// integration, the snapshot's manifest, the suspects, and in their order the
// rows that approval is about, each with what would be sent, under which
// precondition, what it undoes and what was chosen. The same inputs on the same
// world give the same hash; changes outside the gate, which are only shown,
// are not part of it.
func planHash(integration string, manifest [32]byte, suspects []Suspect, rows []Row) [32]byte {
	ids := make([]int64, len(suspects))
	for i, s := range suspects {
		ids[i] = s.Mutation.ID
	}
	slices.Sort(ids)
	list := []byte{'['}
	for _, r := range rows {
		if r.Kind == RowOutside {
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, rowMeaning(r)...)
	}
	return sha256.Sum256(gate.Compose(map[string]json.RawMessage{
		"integration": text(integration),
		"rows":        append(list, ']'),
		"snapshot":    text(hex.EncodeToString(manifest[:])),
		"suspects":    numbers(ids),
	}))
}

func rowMeaning(r Row) json.RawMessage {
	precondition := json.RawMessage("null") // the entity must not exist
	if r.Live != nil {
		precondition = strconv.AppendInt(nil, r.LiveVersion, 10)
	}
	return gate.Compose(map[string]json.RawMessage{
		"body":         r.Body,
		"choice":       text(r.Choice),
		"id":           text(r.EntityID),
		"kind":         text(string(r.Kind)),
		"op":           text(string(r.Op)),
		"precondition": precondition,
		"type":         text(r.EntityType),
		"undoes":       numbers(r.Undoes),
	})
}

// text is s as a canonical JSON string; Compose escapes as RFC 8785 asks.
func text(s string) json.RawMessage {
	named := gate.Compose(map[string]json.RawMessage{s: json.RawMessage("0")})
	return named[1 : len(named)-len(":0}")]
}

func numbers(ids []int64) json.RawMessage {
	out := json.RawMessage{'['}
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, id, 10)
	}
	return append(out, ']')
}
