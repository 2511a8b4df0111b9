package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluis/gate"
)

const maxJournal = 4 << 30 // bytes; a change past it is refused

// What a journal line records.
const (
	opSeed   = "seed"
	opPut    = "put"
	opDelete = "delete"
	opForget = "forget"
)

// document is an entity on the wire and in the journal.
type document struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Version   int64           `json:"version"`
	UpdatedAt time.Time       `json:"updated_at"`
	UpdatedBy string          `json:"updated_by"`
	Deleted   bool            `json:"deleted,omitempty"`
	State     json.RawMessage `json:"state"`
}

func documentOf(e gate.Entity) document {
	return document{
		Type: e.Type, ID: e.ID, Version: e.Version,
		UpdatedAt: e.UpdatedAt, UpdatedBy: e.UpdatedBy, State: e.State,
	}
}

func (d document) entity() gate.Entity {
	return gate.Entity{
		Type: d.Type, ID: d.ID, Version: d.Version,
		State: d.State, UpdatedAt: d.UpdatedAt, UpdatedBy: d.UpdatedBy,
	}
}

// line is one journal line: a change together with its key and its answer.
type line struct {
	Op      string     `json:"op"`
	At      time.Time  `json:"at"`
	Entity  *document  `json:"entity,omitempty"`
	Seed    []document `json:"seed,omitempty"`
	Key     string     `json:"key,omitempty"` // for opForget: the key, or empty for all
	Request []byte     `json:"request,omitempty"`
	Status  int        `json:"status,omitempty"`
}

// encode writes v as one line, and states byte for byte as they are: Marshal
// would escape <, > and & in them.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return out.Bytes(), err
}

// journal is the append-only file.
type journal struct {
	file *os.File
	size int64
}

// openJournal replays the file's lines and drops a torn last one.
func openJournal(dir string, replay func(line)) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "journal.jsonl"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{file: f}
	if err := j.load(replay); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

func (j *journal) load(replay func(line)) error {
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s is open in another process: %w", j.file.Name(), err)
	}
	in := bufio.NewReaderSize(j.file, 1<<20)
	for n := 1; ; n++ {
		raw, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return j.truncate(j.size) // raw, if any, is a torn line: its answer never went out
		}
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("%s line %d: %w", j.file.Name(), n, err)
		}
		replay(l)
		j.size += int64(len(raw))
	}
}

// append writes the line with one write. A failed write is taken back, so that
// a change whose answer is an error is not there after a reopening either.
func (j *journal) append(l line) error {
	raw, err := encode(l)
	if err != nil {
		return err
	}
	if j.size+int64(len(raw)) > maxJournal {
		return errFull
	}
	if _, err := j.file.Write(raw); err != nil {
		return errors.Join(err, j.truncate(j.size))
	}
	j.size += int64(len(raw))
	return nil
}

func (j *journal) truncate(size int64) error {
	if err := j.file.Truncate(size); err != nil {
		return err
	}
	j.size = size
	return nil
}

func (j *journal) close() error { return j.file.Close() }

// commit writes the line and then lets it take effect. The caller holds mu.
func (s *System) commit(l line) error {
	if err := s.journal.append(l); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	s.world.take(l)
	return nil
}

// take lets one journal line take effect.
func (w *world) take(l line) {
	switch l.Op {
	case opSeed:
		for _, d := range l.Seed {
			w.put(d)
		}
	case opPut:
		w.put(*l.Entity)
	case opDelete:
		w.remove(*l.Entity)
	case opForget:
		w.forget(l.Key, l.At)
		return
	}
	if l.Key != "" {
		w.remember(l)
	}
}

func (w *world) put(d document) {
	k := entityKey{d.Type, d.ID}
	if _, known := w.entities[k]; !known {
		at, _ := slices.BinarySearchFunc(w.order, k, entityKey.compare)
		w.order = slices.Insert(w.order, at, k)
	}
	w.entities[k] = d.entity()
	delete(w.buried, k)
	if _, digits, ok := strings.Cut(d.ID, "-"); ok {
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
			w.counters[d.Type] = max(w.counters[d.Type], n)
		}
	}
}

func (w *world) remove(d document) {
	k := entityKey{d.Type, d.ID}
	delete(w.entities, k)
	w.buried[k] = d.Version
	if at, found := slices.BinarySearchFunc(w.order, k, entityKey.compare); found {
		w.order = slices.Delete(w.order, at, at+1)
	}
}

func (w *world) remember(l line) {
	r := remembered{key: l.Key, at: l.At, status: l.Status}
	copy(r.request[:], l.Request)
	r.answer, _ = encode(l.Entity) // what was just decoded or encoded
	w.keys[l.Key] = r
	w.keyOrder = append(w.keyOrder, l.Key)
	if w.applied[l.Key]++; w.applied[l.Key] == 2 {
		w.doubled = append(w.doubled, l.Key)
	}
}

// forget drops one key, or all, from the memory; from then on it is complete
// only after at.
func (w *world) forget(key string, at time.Time) {
	if key == "" {
		w.keys, w.keyOrder = map[string]remembered{}, nil
	} else {
		delete(w.keys, key)
	}
	w.knownSince = later(w.knownSince, at)
}

// expire drops the keys that were applied before the limit.
func (w *world) expire(limit time.Time) {
	for len(w.keyOrder) > 0 {
		r, known := w.keys[w.keyOrder[0]]
		if known && !r.at.Before(limit) {
			return
		}
		if known {
			delete(w.keys, r.key)
			w.knownSince = later(w.knownSince, r.at.Add(time.Microsecond))
		}
		w.keyOrder = w.keyOrder[1:]
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
