package snapshots

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"sluis/gate"
)

// zstdWindow bounds the memory that writing and reading a body takes.
const zstdWindow = 1 << 20

// Entity is one record of a world: what the projection held.
type Entity struct {
	ID           string          `json:"id"`
	LastMutation int64           `json:"last_mutation"` // 0 when it was adopted from the target
	State        json.RawMessage `json:"state"`         // canonical JSON
	Subject      string          `json:"subject"`
	Type         string          `json:"type"`
	Version      int64           `json:"version"`
}

// compare orders entities by the bytes of type, then id.
func (e Entity) compare(o Entity) int {
	return cmp.Or(cmp.Compare(e.Type, o.Type), cmp.Compare(e.ID, o.ID))
}

// World is the state that one snapshot sealed. It does not change and may be
// read from several goroutines.
type World struct {
	Manifest Manifest
	entities []Entity // by type, then id
}

// Len is the number of entities.
func (w *World) Len() int { return len(w.entities) }

// Lookup finds one entity.
func (w *World) Lookup(typ, id string) (Entity, bool) {
	want := Entity{Type: typ, ID: id}
	i, ok := slices.BinarySearchFunc(w.entities, want, Entity.compare)
	if !ok {
		return Entity{}, false
	}
	return w.entities[i], true
}

// All yields the entities in the byte order of type, then id.
func (w *World) All() iter.Seq[Entity] { return slices.Values(w.entities) }

// sealedBody is a body ready to be stored.
type sealedBody struct {
	stored      []byte
	contentHash Hash
	contentSize int64
	entities    int64
}

func (b sealedBody) describe(integration string) Body {
	return Body{
		ContentHash: b.contentHash, ContentSize: b.contentSize,
		Encoding: bodyEncoding, Key: bodyKey(integration, b.contentHash), Kind: bodyFull,
		StoredHash: hashOf(b.stored), StoredSize: int64(len(b.stored)),
	}
}

// bodyWriter writes lines: hashed as they are, stored compressed. What is in
// memory is the compressed body alone.
type bodyWriter struct {
	out  bytes.Buffer
	zip  *zstd.Encoder
	sum  hash.Hash
	line []byte
	body sealedBody
	last Entity
}

func newBodyWriter() (*bodyWriter, error) {
	w := &bodyWriter{sum: sha256.New()}
	var err error
	w.zip, err = zstd.NewWriter(&w.out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow))
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return w, nil
}

// add writes one entity, which has to come after the one before.
func (w *bodyWriter) add(e Entity) error {
	if w.body.entities > 0 && w.last.compare(e) >= 0 {
		return fmt.Errorf("%s %s comes after %s %s: not in byte order", e.Type, e.ID, w.last.Type, w.last.ID)
	}
	line, err := appendLine(w.line[:0], e)
	if err != nil {
		return err
	}
	w.line, w.last = line, e
	w.body.entities++
	w.body.contentSize += int64(len(line))
	_, _ = w.sum.Write(line) // a hash never fails
	if _, err := w.zip.Write(line); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return nil
}

func (w *bodyWriter) finish() (sealedBody, error) {
	if err := w.zip.Close(); err != nil {
		return sealedBody{}, fmt.Errorf("compress: %w", err)
	}
	w.body.stored = w.out.Bytes()
	w.sum.Sum(w.body.contentHash[:0])
	return w.body, nil
}

// appendLine writes an entity as one line of canonical JSON.
func appendLine(out []byte, e Entity) ([]byte, error) {
	var err error
	text := func(s string) {
		if err == nil {
			out, err = appendText(out, s)
		}
	}
	out = append(out, `{"id":`...)
	text(e.ID)
	out = append(out, `,"last_mutation":`...)
	out = strconv.AppendInt(out, e.LastMutation, 10)
	out = append(out, `,"state":`...)
	out = append(out, e.State...)
	out = append(out, `,"subject":`...)
	text(e.Subject)
	out = append(out, `,"type":`...)
	text(e.Type)
	out = append(out, `,"version":`...)
	out = strconv.AppendInt(out, e.Version, 10)
	return append(out, "}\n"...), err
}

// appendText writes a canonical JSON string: as it is where nothing needs an
// escape, else by way of the gate's canonical form.
func appendText(out []byte, s string) ([]byte, error) {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return out, fmt.Errorf("encode %q: %w", s, err)
			}
			canonical, err := gate.Canonical(quoted, 0)
			if err != nil {
				return out, fmt.Errorf("encode %q: %w", s, err)
			}
			return append(out, canonical...), nil
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"'), nil
}

// readLines decompresses a stored body and hands on each line, without its
// newline, valid until the next. It returns the content's hash and size.
func readLines(stored []byte, line func([]byte) error) (Hash, int64, error) {
	var content Hash
	zip, err := zstd.NewReader(bytes.NewReader(stored), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return content, 0, fmt.Errorf("decompress: %w", err)
	}
	defer zip.Close()
	sum := sha256.New()
	in := bufio.NewReaderSize(io.TeeReader(zip, sum), 1<<16)
	var size int64
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		size += int64(len(part))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case errors.Is(err, io.EOF) && len(part) == 0 && len(long) == 0:
			sum.Sum(content[:0])
			return content, size, nil
		case errors.Is(err, io.EOF):
			return content, size, errors.New("the last line is cut")
		case err != nil:
			return content, size, fmt.Errorf("decompress: %w", err)
		}
		if len(long) > 0 {
			long = append(long, part...)
			part = long
		}
		if err := line(part[:len(part)-1]); err != nil {
			return content, size, err
		}
		long = long[:0]
	}
}

// openWorld checks a stored body against its manifest and reads it.
func openWorld(m Manifest, stored []byte) (*World, error) {
	if int64(len(stored)) != m.Body.StoredSize || hashOf(stored) != m.Body.StoredHash {
		return nil, &BrokenError{Seq: m.Seq, Kind: ProblemBody, What: "the body is not the one that was sealed"}
	}
	w := &World{Manifest: m, entities: make([]Entity, 0, m.Entities)}
	content, size, err := readLines(stored, func(line []byte) error {
		var e Entity
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", len(w.entities)+1, err)
		}
		if n := len(w.entities); n > 0 && w.entities[n-1].compare(e) >= 0 {
			return fmt.Errorf("line %d is out of order", n+1)
		}
		w.entities = append(w.entities, e)
		return nil
	})
	if err != nil {
		return nil, &BrokenError{Seq: m.Seq, Kind: ProblemBody, What: err.Error()}
	}
	if content != m.Body.ContentHash || size != m.Body.ContentSize || int64(len(w.entities)) != m.Entities {
		return nil, &BrokenError{Seq: m.Seq, Kind: ProblemBody, What: "the lines are not those that were sealed"}
	}
	return w, nil
}

// World reads the state that a snapshot sealed: the very objects that were
// recorded, whatever was put over them since, checked against the recorded
// hash, the signature and the manifest. What does not check is a *BrokenError.
func (s *Service) World(ctx context.Context, snap Snapshot) (*World, error) {
	row, err := s.row(ctx, snap.Integration, snap.Seq)
	if err != nil {
		return nil, err
	}
	if row.ManifestHash != snap.ManifestHash {
		return nil, &BrokenError{Seq: snap.Seq, Kind: ProblemChain, What: "the snapshot asked for is not the one recorded"}
	}
	m, err := s.sealedManifest(ctx, row)
	if err != nil {
		return nil, err
	}
	stored, err := s.object(ctx, row.Seq, m.Body.Key, row.bodyVersion)
	if err != nil {
		return nil, err
	}
	return openWorld(m, stored)
}
