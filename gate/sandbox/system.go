package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sluis/gate"
)

// Bounds of one system. Past them a change is refused with 507.
const (
	maxEntities = 2_000_000
	maxKeys     = 2_000_000
	maxBody     = 1 << 20
	maxPage     = 1000
)

// Options sets up a system.
type Options struct {
	// Clock is the record system's own time: stamps, retention and the Date
	// header. It is needed.
	Clock func() time.Time
	// Retention is how long a key is remembered; 0 means 24 hours.
	Retention time.Duration
	// Logger gets one line for each fault and double application; nil discards.
	Logger *slog.Logger
	// Token is what callers must present; empty lets everyone in.
	Token string
}

// System is one simulated record system. It is safe for concurrent use.
type System struct {
	now       func() time.Time
	retention time.Duration
	log       *slog.Logger
	token     string
	done      chan struct{}
	closeOnce sync.Once

	mu      sync.Mutex
	journal *journal
	world   world
	faults  []Fault
	sends   map[string]int
}

// entityKey orders entities as Live and Snapshot do.
type entityKey struct{ typ, id string }

func (a entityKey) compare(b entityKey) int {
	return cmp.Or(strings.Compare(a.typ, b.typ), strings.Compare(a.id, b.id))
}

// remembered is a key's answer.
type remembered struct {
	key     string
	at      time.Time
	request [32]byte // digest of method, path and body
	status  int
	answer  []byte
}

// world is the state that the journal's lines add up to.
type world struct {
	entities   map[entityKey]gate.Entity
	order      []entityKey           // of the entities, sorted
	buried     map[entityKey]int64   // last version of what was deleted
	counters   map[string]int64      // highest number assigned or seen for a type
	keys       map[string]remembered // the key memory
	keyOrder   []string              // in the order of application, for retention
	applied    map[string]int        // applications of a key, never forgotten
	doubled    []string              // keys applied more than once, in the order of it
	knownSince time.Time
}

func newWorld() world {
	return world{
		entities: map[entityKey]gate.Entity{}, buried: map[entityKey]int64{},
		counters: map[string]int64{}, keys: map[string]remembered{},
		applied: map[string]int{}, knownSince: time.Unix(0, 0).UTC(),
	}
}

// Open opens the system whose journal lies in dir, or begins a new one there.
// It fails when another process has it open.
func Open(dir string, o Options) (*System, error) {
	if o.Clock == nil {
		return nil, errors.New("open sandbox: no clock is given")
	}
	if o.Retention <= 0 {
		o.Retention = 24 * time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s := &System{
		now:       func() time.Time { return o.Clock().UTC().Truncate(time.Microsecond) },
		retention: o.Retention, log: o.Logger, token: o.Token,
		done: make(chan struct{}), world: newWorld(), sends: map[string]int{},
	}
	j, err := openJournal(dir, s.world.take)
	if err != nil {
		return nil, fmt.Errorf("open sandbox: %w", err)
	}
	s.journal = j
	for key, n := range s.world.applied {
		s.sends[key] = n
	}
	return s, nil
}

// Close ends waiting faults and closes the journal. Nothing needs it for
// durability.
func (s *System) Close() error {
	s.closeOnce.Do(func() { close(s.done) })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.close()
}

// Seed puts entities in as they are, version, time and author included,
// replacing those of the same type and id. A zero version counts as 1.
func (s *System) Seed(entities []gate.Entity) error {
	now := s.now()
	docs := make([]document, len(entities))
	for i, e := range entities {
		state, err := gate.Canonical(e.State, maxBody)
		if err != nil {
			return fmt.Errorf("seed %s %s: %w", e.Type, e.ID, err)
		}
		if !validType(e.Type) || !validID(e.ID) {
			return fmt.Errorf("seed %q %q: not a type and id", e.Type, e.ID)
		}
		e.State, e.Version = state, max(e.Version, 1)
		if e.UpdatedAt.IsZero() {
			e.UpdatedAt = now
		}
		docs[i] = documentOf(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit(line{Op: opSeed, At: now, Seed: docs})
}

// Snapshot is every entity, in (type, id) order.
func (s *System) Snapshot() []gate.Entity {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]gate.Entity, len(s.world.order))
	for i, k := range s.world.order {
		out[i] = s.world.entities[k]
	}
	return out
}

// Sends counts the changes that arrived under each key, refused and replayed
// ones included. After a reopening, each application in the journal counts as
// one.
func (s *System) Sends() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sends)
}

// countSend counts an arrival under a key; past the bound new keys are not.
func (s *System) countSend(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.sends[key]; key != "" && (known || len(s.sends) < maxKeys) {
		s.sends[key]++
	}
}

// DoubleApplied lists the keys that were applied more than once. A correct
// caller keeps it empty.
func (s *System) DoubleApplied() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.world.doubled)
}

// Reset puts a new system in the place of the old: no entities, keys, counts
// or faults, as if nothing had ever been sent to it.
func (s *System) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.journal.truncate(0); err != nil {
		return fmt.Errorf("reset sandbox: %w", err)
	}
	s.world, s.faults, s.sends = newWorld(), nil, map[string]int{}
	return nil
}

// live is a page of entities after the cursor.
func (s *System) live(after string, limit int) (page []gate.Entity, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	if after != "" {
		typ, id, ok := strings.Cut(after, "/")
		if !ok {
			return nil, "", errors.New("after is not a cursor that this system gave")
		}
		at, found := slices.BinarySearchFunc(s.world.order, entityKey{typ, id}, entityKey.compare)
		if from = at; found {
			from++
		}
	}
	to := min(from+limit, len(s.world.order))
	for _, k := range s.world.order[from:to] {
		page = append(page, s.world.entities[k])
	}
	if to < len(s.world.order) {
		last := s.world.order[to-1]
		next = last.typ + "/" + last.id
	}
	return page, next, nil
}
