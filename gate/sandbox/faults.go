package sandbox

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"sluis/gate"
)

// FaultKind is a way in which a record system fails.
type FaultKind string

// The kinds of fault.
const (
	LatencyBefore FaultKind = "latency_before" // waits, then applies
	LatencyAfter  FaultKind = "latency_after"  // applies, waits, then answers
	ErrorBefore   FaultKind = "error_before"   // 500, not applied
	ErrorAfter    FaultKind = "error_after"    // 500, applied
	CutAfter      FaultKind = "cut_after"      // applied, then the connection is cut
	ForgetKeys    FaultKind = "forget_keys"    // at once: the key memory, or the matched key, is gone
	Refuse        FaultKind = "refuse"         // a 4xx, not applied
)

const (
	maxFaults  = 100
	maxLatency = 2 * time.Minute
)

// Match narrows a fault down; an empty field matches everything, except that
// an empty Op matches changes only. Op is create, update, delete, get, live
// or lookup.
type Match struct {
	Op   string `json:"op,omitempty"`
	Type string `json:"type,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Fault makes requests fail. Several that match one request all apply.
type Fault struct {
	Kind       FaultKind `json:"kind"`
	DurationMS int       `json:"duration_ms,omitempty"` // of a latency, up to two minutes
	Status     int       `json:"status,omitempty"`      // of a refusal, 400 to 499; 0 means 400
	Count      int       `json:"count,omitempty"`       // how many requests it still hits; 0 means until cleared
	Match      Match     `json:"match,omitzero"`
}

func (f Fault) check() error {
	kinds := []FaultKind{LatencyBefore, LatencyAfter, ErrorBefore, ErrorAfter, CutAfter, ForgetKeys, Refuse}
	switch {
	case !slices.Contains(kinds, f.Kind):
		return fmt.Errorf("unknown fault %q", f.Kind)
	case f.DurationMS < 0 || time.Duration(f.DurationMS)*time.Millisecond > maxLatency:
		return fmt.Errorf("duration_ms is not between 0 and %d", maxLatency.Milliseconds())
	case f.Count < 0:
		return fmt.Errorf("count is negative")
	case f.Status != 0 && (f.Status < 400 || f.Status > 499):
		return fmt.Errorf("status is not a 4xx")
	}
	return nil
}

// SetFaults replaces the list of faults; an empty one clears it. A
// forget_keys takes effect at once and is not kept.
func (s *System) SetFaults(faults []Fault) error {
	if len(faults) > maxFaults {
		return fmt.Errorf("more than %d faults", maxFaults)
	}
	for i, f := range faults {
		if err := f.check(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	for _, f := range faults {
		if f.Kind != ForgetKeys {
			s.faults = append(s.faults, f)
			continue
		}
		if err := s.commit(line{Op: opForget, At: now, Key: f.Match.Key}); err != nil {
			return err
		}
	}
	return nil
}

// hit takes the faults that apply to this request, and counts them down.
func (s *System) hit(op, typ, key string) map[FaultKind]Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	hits := map[FaultKind]Fault{}
	s.faults = slices.DeleteFunc(s.faults, func(f Fault) bool { return f.Count < 0 })
	for i := range s.faults {
		f := &s.faults[i]
		if !f.Match.covers(op, typ, key) || f.Count < 0 {
			continue
		}
		hits[f.Kind] = *f
		if f.Count == 1 {
			f.Count = -1 // used up
		} else if f.Count > 1 {
			f.Count--
		}
	}
	return hits
}

func (m Match) covers(op, typ, key string) bool {
	if m.Op == "" && !gate.Op(op).Valid() || m.Op != "" && m.Op != op {
		return false
	}
	return (m.Type == "" || m.Type == typ) && (m.Key == "" || m.Key == key)
}

// pause waits out a latency; closing the system ends it. The caller's hanging
// up does not: a slow system applies all the same.
func (s *System) pause(f Fault) {
	if f.DurationMS == 0 {
		return
	}
	t := time.NewTimer(time.Duration(f.DurationMS) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.done:
	}
}

// before lets the faults that strike before applying strike.
func (s *System) before(hits map[FaultKind]Fault) error {
	s.pause(hits[LatencyBefore])
	if f, ok := hits[Refuse]; ok {
		return problem(max(f.Status, http.StatusBadRequest), "", "refused on demand")
	}
	if _, ok := hits[ErrorBefore]; ok {
		return problem(http.StatusInternalServerError, "", "failed on demand")
	}
	return nil
}

// after lets those strike that come once it is applied. It does not return
// when the connection is to be cut.
func (s *System) after(hits map[FaultKind]Fault) error {
	s.pause(hits[LatencyAfter])
	if _, ok := hits[CutAfter]; ok {
		panic(http.ErrAbortHandler) // net/http closes the connection without an answer
	}
	if _, ok := hits[ErrorAfter]; ok {
		return problem(http.StatusInternalServerError, "", "failed on demand")
	}
	return nil
}
