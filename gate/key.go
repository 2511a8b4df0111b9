package gate

import (
	"crypto/sha256"
	"encoding/binary"
)

// The domains keep keys of different sorts, and of a later version, apart.
const (
	naturalDomain = "sluis natural key v1"
	derivedDomain = "sluis derived key v1"
)

// NaturalKey is the idempotency key of one intended mutation. It is a function
// of what the provider sent and of nothing else: integration, account, event
// id and the effect's name. The time, the run, the session and the attempt
// have no way in, so that a retry in a fresh session has the same key
// (incident 3).
func NaturalKey(integration string, ref EventRef, effect string) Key {
	return digest(naturalDomain, integration, ref.Account, ref.ID, effect)
}

// DerivedKey is the key of a mutation that Sluis itself causes: the release
// of an item, a mutation passed through, a row of a rollback plan. purpose
// names the sort, parts name the one thing; the same parts always give the
// same key, and no derived key meets a natural one.
func DerivedKey(purpose string, parts ...string) Key {
	return digest(derivedDomain, append([]string{purpose}, parts...)...)
}

// digest hashes parts, each behind its length, so that no two lists of parts
// are one text.
func digest(domain string, parts ...string) Key {
	size := 8 * (len(parts) + 1)
	for _, s := range parts {
		size += len(s)
	}
	text := make([]byte, 0, size+len(domain))
	text = appendPart(text, domain)
	for _, s := range parts {
		text = appendPart(text, s)
	}
	return sha256.Sum256(text)
}

func appendPart(text []byte, s string) []byte {
	text = binary.BigEndian.AppendUint64(text, uint64(len(s)))
	return append(text, s...)
}
