package snapshots

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// manifestFormat is the number of the format that this package writes.
const manifestFormat = 1

// The kinds and encodings of a body.
const (
	bodyFull     = "full" // the whole state; a later format may add deltas
	bodyEncoding = "zstd"
)

// Hash is a SHA-256 digest, in JSON 64 lower-case hexadecimal digits.
type Hash [32]byte

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hash in hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("a hash has 64 hexadecimal digits, not %d", len(text))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("hash: %w", err)
	}
	return nil
}

// Manifest says what one snapshot holds and which one came before it. Its
// canonical JSON is the text of a signed note, and that note is the object in
// the store. The fields stand in the order of their JSON names.
type Manifest struct {
	Audit       AuditHead `json:"audit"`
	Body        Body      `json:"body"`
	Entities    int64     `json:"entities"`
	Format      int       `json:"format"`
	Integration string    `json:"integration"`
	Mutations   Position  `json:"mutations"`
	Prev        Hash      `json:"prev"`         // SHA-256 of the previous manifest's object; zeros for the first
	RetainUntil time.Time `json:"retain_until"` // both objects are locked at least until then, in real time
	Seq         int64     `json:"seq"`          // from 1, without gaps
	TakenAt     time.Time `json:"taken_at"`     // on the gate's clock
}

// AuditHead is the end of the audit record's chain as the snapshot saw it.
type AuditHead struct {
	Hash Hash  `json:"hash"`
	Pos  int64 `json:"pos"`
}

// Body names the object that holds the state.
type Body struct {
	ContentHash Hash   `json:"content_hash"` // of the lines
	ContentSize int64  `json:"content_size"`
	Encoding    string `json:"encoding"`
	Key         string `json:"key"`
	Kind        string `json:"kind"`
	StoredHash  Hash   `json:"stored_hash"` // of the object
	StoredSize  int64  `json:"stored_size"`
}

// Position is where in the sequence of mutations a snapshot stands. Mutations
// settle in another order than they are reserved in, so one number cannot say
// it: the effect of every mutation up to Last is inside, except of those in
// Open; of those after Last none is. A replay from the snapshot takes the
// committed mutations after Last, and those of Open that were committed since.
type Position struct {
	Last int64   `json:"last"`
	Open []int64 `json:"open"` // ascending; in flight, unknown or manual at that moment
}

// Contains reports whether the effect of a committed mutation is inside.
func (p Position) Contains(mutation int64) bool {
	if mutation > p.Last {
		return false
	}
	for _, id := range p.Open {
		if id == mutation {
			return false
		}
	}
	return true
}

// Keys of objects are flat: none is the folder of another, and none is used twice.
func manifestPrefix(integration string) string { return integration + "/manifest-" }

func manifestKey(integration string, seq int64) string {
	return fmt.Sprintf("%s%012d", manifestPrefix(integration), seq)
}

func bodyKey(integration string, content Hash) string {
	return integration + "/body-" + content.String()
}

// manifestSeq reads the sequence number out of a manifest's key.
func manifestSeq(integration, key string) (int64, bool) {
	digits, ok := strings.CutPrefix(key, manifestPrefix(integration))
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	return seq, err == nil && seq >= 1 && manifestKey(integration, seq) == key
}

// seal is the manifest's object: signing is deterministic, so the same
// manifest is always the same bytes.
func (m Manifest) seal(k Keys) ([]byte, error) {
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	raw, err := note.Sign(&note.Note{Text: text}, k.signer)
	if err != nil {
		return nil, fmt.Errorf("sign manifest %d: %w", m.Seq, err)
	}
	return raw, nil
}

// text is the manifest's canonical JSON and a newline. Every string in it is
// ASCII without anything to escape, and every number an integer, so that
// encoding/json's compact form is the canonical one.
func (m Manifest) text() (string, error) {
	if m.Mutations.Open == nil {
		m.Mutations.Open = []int64{}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode manifest %d: %w", m.Seq, err)
	}
	return string(b) + "\n", nil
}

// signatureError says that an object is no note signed by the expected key.
type signatureError struct{ err error }

func (e *signatureError) Error() string { return "not signed by the expected key: " + e.err.Error() }
func (e *signatureError) Unwrap() error { return e.err }

// openManifest checks the signature of a manifest's object and reads it. A bad
// signature is a *signatureError; anything else means that the holder of the
// key signed something that this version does not write.
func openManifest(raw []byte, v note.Verifier) (Manifest, error) {
	var m Manifest
	n, err := note.Open(raw, note.VerifierList(v))
	if err != nil {
		return m, &signatureError{err}
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal([]byte(n.Text), &head); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if head.Format != manifestFormat {
		return m, fmt.Errorf("manifest has format %d; this version reads format %d", head.Format, manifestFormat)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(n.Text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if text, err := m.text(); err != nil || text != n.Text {
		return m, fmt.Errorf("manifest %d is not in canonical form", m.Seq)
	}
	if m.Body.Kind != bodyFull || m.Body.Encoding != bodyEncoding {
		return m, fmt.Errorf("manifest %d has a body of kind %q, encoding %q", m.Seq, m.Body.Kind, m.Body.Encoding)
	}
	return m, nil
}

// hashOf is the SHA-256 of b.
func hashOf(b []byte) Hash { return sha256.Sum256(b) }
