package sandbox

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluis/gate"
)

// errFull says that a bound of the system is reached.
var errFull = errors.New("the sandbox is full")

// Change is one change of the record system.
type Change struct {
	Op        gate.Op
	Type      string
	ID        string // empty for a create whose id the system assigns
	Body      json.RawMessage
	Actor     string
	Key       string // the idempotency key; empty for a hand edit
	IfVersion *int64
}

// digest binds a key to its request.
func (c Change) digest() [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %s/%s\n%s", c.Op, c.Type, c.ID, c.Body))
}

// answer is what a change got: a document, or a problem when err is set.
type answer struct {
	status   int
	body     []byte
	replayed bool
}

// Apply makes the change, or answers it from the key memory. The error is a
// *Problem when the system refuses it.
func (s *System) Apply(c Change) (gate.Entity, error) {
	a, err := s.apply(c)
	if err != nil {
		return gate.Entity{}, err
	}
	var d document
	if err := json.Unmarshal(a.body, &d); err != nil {
		return gate.Entity{}, fmt.Errorf("stored answer: %w", err)
	}
	return d.entity(), nil
}

func (s *System) apply(c Change) (answer, error) {
	if err := c.check(); err != nil {
		return answer{}, err
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.expire(now.Add(-s.retention))
	digest := c.digest()
	if r, known := s.world.keys[c.Key]; known && c.Key != "" {
		if r.request != digest {
			return answer{}, problem(http.StatusUnprocessableEntity, ProblemKeyReused,
				"this key was used with another request")
		}
		return answer{r.status, r.answer, true}, nil
	}
	l, err := s.world.change(c, now)
	if err != nil {
		return answer{}, err
	}
	if c.Key != "" {
		l.Key, l.Request = c.Key, digest[:]
		if len(s.world.keys) >= maxKeys {
			return answer{}, problem(http.StatusInsufficientStorage, "", "too many keys")
		}
	}
	if err := s.commit(l); err != nil {
		s.log.Error("sandbox journal", "err", err)
		return answer{}, problem(http.StatusInsufficientStorage, "", "the journal cannot be written")
	}
	if s.world.applied[c.Key] > 1 {
		s.log.Error("a key was applied again", "key", c.Key, "times", s.world.applied[c.Key])
	}
	body, err := encode(l.Entity)
	return answer{l.Status, body, false}, err
}

// check refuses what no state could accept, and puts the body in canonical form.
func (c *Change) check() error {
	bad := func(detail string) error { return problem(http.StatusBadRequest, "", detail) }
	if !c.Op.Valid() || !validType(c.Type) {
		return bad("not an operation and type of this system")
	}
	if c.ID == "" && c.Op != gate.OpCreate || c.ID != "" && !validID(c.ID) {
		return bad("not an id")
	}
	if len(c.Key) > 255 {
		return bad("the key is longer than 255 characters")
	}
	if c.Op == gate.OpDelete {
		c.Body = nil
		return nil
	}
	canonical, err := gate.Canonical(c.Body, maxBody)
	if err != nil {
		return bad(err.Error())
	}
	if canonical[0] != '{' {
		return bad("the body is not a JSON object")
	}
	c.Body = canonical
	return nil
}

// change works out the line for c; it alters nothing.
func (w *world) change(c Change, now time.Time) (line, error) {
	if c.Op == gate.OpCreate {
		return w.create(c, now)
	}
	e, ok := w.entities[entityKey{c.Type, c.ID}]
	if !ok {
		return line{}, problem(http.StatusNotFound, "", "no such "+c.Type)
	}
	if c.IfVersion != nil && *c.IfVersion != e.Version {
		return line{}, problem(http.StatusPreconditionFailed, "",
			fmt.Sprintf("version is %d, not %d", e.Version, *c.IfVersion))
	}
	op := opPut
	if c.Op == gate.OpDelete {
		op = opDelete
	} else {
		merged, err := gate.Merge(e.State, c.Body)
		if err != nil {
			return line{}, problem(http.StatusBadRequest, "", err.Error())
		}
		e.State = merged
	}
	e.Version, e.UpdatedAt, e.UpdatedBy = e.Version+1, now, c.Actor
	d := documentOf(e)
	d.Deleted = op == opDelete
	return line{Op: op, At: now, Entity: &d, Status: http.StatusOK}, nil
}

func (w *world) create(c Change, now time.Time) (line, error) {
	if len(w.entities) >= maxEntities {
		return line{}, problem(http.StatusInsufficientStorage, "", errFull.Error())
	}
	id := c.ID
	if id == "" {
		id = fmt.Sprintf("%s-%06d", strings.ToUpper(c.Type[:1]), w.counters[c.Type]+1)
	}
	k := entityKey{c.Type, id}
	if _, exists := w.entities[k]; exists {
		return line{}, problem(http.StatusConflict, "", c.Type+" "+id+" exists")
	}
	d := document{
		Type: c.Type, ID: id, Version: w.buried[k] + 1,
		UpdatedAt: now, UpdatedBy: c.Actor, State: c.Body,
	}
	return line{Op: opPut, At: now, Entity: &d, Status: http.StatusCreated}, nil
}

// reserved are the path segments that are not types.
var reserved = []string{"live", "keys", "health", "faults"}

func validType(s string) bool {
	if s == "" || len(s) > 64 || s[0] < 'a' || s[0] > 'z' || slices.Contains(reserved, s) {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func validID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._:-", c) >= 0) {
			return false
		}
	}
	return s != "." && s != ".."
}
