package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"sluis/gate"
)

// Bounds of a trace that can be read.
const (
	maxLine  = 16 << 20  // bytes
	maxTrace = 256 << 20 // bytes, decompressed
)

// Kind is what a step is.
type Kind string

// The kinds of step.
const (
	KindMeta    Kind = "meta"
	KindSeed    Kind = "seed"
	KindRoster  Kind = "roster"
	KindDeliver Kind = "deliver"
	KindEdit    Kind = "edit"
	KindClock   Kind = "clock"
	KindNote    Kind = "note"
)

// Meta describes a trace.
type Meta struct {
	Name        string    `json:"name"`
	Integration string    `json:"integration"`
	Zone        string    `json:"zone"` // IANA name of the organisation's zone
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Board       string    `json:"board,omitempty"` // the day whose board the figures are about
}

// Entity is a seeded record.
type Entity struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Version   int64           `json:"version"`
	State     json.RawMessage `json:"state"`
	UpdatedAt time.Time       `json:"updated_at"`
	UpdatedBy string          `json:"updated_by"`
}

// Roster is the roster system's answer for one day.
type Roster struct {
	Day    string  `json:"day"`
	Routes []Route `json:"routes"`
}

// Route is one nurse's day.
type Route struct {
	Route  string  `json:"route"`
	Nurse  string  `json:"nurse"`
	Visits []Visit `json:"visits"`
}

// Visit is one planned visit; the state of a visit in the record system has
// these fields and no others.
type Visit struct {
	Client   string `json:"client"`
	Nurse    string `json:"nurse"`
	Route    string `json:"route"` // as planned; a swap changes the nurse only
	Stop     int    `json:"stop"`
	Day      string `json:"day"`
	Start    string `json:"start"` // RFC 3339 with offset
	End      string `json:"end"`
	Activity string `json:"activity"`
	Note     string `json:"note"`
}

// Edit is a change by hand in the record system.
type Edit struct {
	Type  string                     `json:"type"`
	Match map[string]json.RawMessage `json:"match"`
	Set   json.RawMessage            `json:"set"`
	By    string                     `json:"by"`
}

// Expect is what a gate in enforce mode must make of a delivery.
type Expect struct {
	Disposition gate.Disposition `json:"disposition"`
	Reason      gate.Reason      `json:"reason,omitempty"`
}

// Step is one line of a trace; the field that belongs to its kind is set.
type Step struct {
	Line       int       `json:"-"`
	Kind       Kind      `json:"step"`
	At         time.Time `json:"at"`
	Meta       *Meta     `json:"meta,omitempty"`
	Seed       []Entity  `json:"seed,omitempty"`
	Roster     *Roster   `json:"roster,omitempty"`
	Raw        *string   `json:"raw,omitempty"`
	Expect     *Expect   `json:"expect,omitempty"`
	Edit       *Edit     `json:"edit,omitempty"`
	WallStepMS int64     `json:"wall_step_ms,omitempty"`
	Note       string    `json:"note,omitempty"`
}

// Trace is a whole recording.
type Trace struct {
	Meta  Meta
	Steps []Step // without the meta step, in order of time
}

// Seed is what the record system holds before the first step.
func (t *Trace) Seed() []gate.Entity {
	var out []gate.Entity
	for _, s := range t.Steps {
		for _, e := range s.Seed {
			out = append(out, gate.Entity(e))
		}
	}
	return out
}

// Open reads a compressed trace file. Errors name the file and the line.
func Open(path string) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	in, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxTrace))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer in.Close()
	t, err := Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Read reads an uncompressed trace. It refuses unknown fields, steps out of
// order, and what is past the bounds.
func Read(r io.Reader) (*Trace, error) {
	limited := &io.LimitedReader{R: r, N: maxTrace + 1}
	in := bufio.NewScanner(limited)
	in.Buffer(make([]byte, 0, 64<<10), maxLine)
	t := &Trace{}
	line := 0
	last := time.Time{}
	for in.Scan() {
		line++
		s, err := parseStep(in.Bytes())
		if err == nil {
			err = t.add(s, line, last)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		last = s.At
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	if limited.N <= 0 {
		return nil, fmt.Errorf("the trace is longer than %d bytes", maxTrace)
	}
	if line == 0 {
		return nil, errors.New("the trace is empty")
	}
	return t, nil
}

func (t *Trace) add(s Step, line int, last time.Time) error {
	switch {
	case (s.Kind == KindMeta) != (line == 1):
		return errors.New("the first step, and only it, is meta")
	case s.At.Before(last):
		return fmt.Errorf("at %s is before the step above", s.At.Format(time.RFC3339Nano))
	case line == 1:
		t.Meta = *s.Meta
		return nil
	case s.At.Before(t.Meta.From) || s.At.After(t.Meta.To):
		return errors.New("at is outside the trace's own span")
	}
	s.Line = line
	t.Steps = append(t.Steps, s)
	return nil
}

func parseStep(raw []byte) (Step, error) {
	var s Step
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return s, err
	}
	if in.More() {
		return s, errors.New("more than one value on the line")
	}
	set := map[Kind]bool{
		KindMeta: s.Meta != nil, KindSeed: s.Seed != nil, KindRoster: s.Roster != nil,
		KindDeliver: s.Raw != nil, KindEdit: s.Edit != nil, KindClock: s.WallStepMS != 0, KindNote: s.Note != "",
	}
	if known, ok := set[s.Kind]; !ok || !known {
		return s, fmt.Errorf("step %q is not known, or lacks its field", s.Kind)
	}
	if s.At.IsZero() || s.At.Location() != time.UTC {
		return s, errors.New("at is not a time in UTC")
	}
	return s, nil
}

// Write writes the trace uncompressed, in the form that Read takes.
func (t *Trace) Write(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	if err := out.Encode(Step{Kind: KindMeta, At: t.Meta.From, Meta: &t.Meta}); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	for _, s := range t.Steps {
		if err := out.Encode(s); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	return nil
}
