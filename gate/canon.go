package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// maxDepth is how many arrays and objects may stand inside one another.
const maxDepth = 64

// ParseError says why a document was refused and what its sender should do.
// It is an ErrMalformed: the same bytes will be refused again.
type ParseError struct {
	Reason Reason // ReasonMalformedBody or ReasonUnsafeNumber
	Offset int    // of the fault, in bytes from the start
	Msg    string // what to do
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s at byte %d: %s", e.Reason, e.Offset, e.Msg)
}

// Is makes every ParseError an ErrMalformed.
func (e *ParseError) Is(target error) bool { return target == ErrMalformed }

// Canonical parses one JSON document strictly and returns its canonical form:
// RFC 8785 with exact numbers (see scanNumber) in place of doubles. Refused,
// each with a *ParseError: more than limit bytes (0: no limit), a byte order
// mark, bytes that are no UTF-8, a name that an object has twice (after its
// escapes are read), a lone surrogate, U+0000 (PostgreSQL's text cannot hold
// it), nesting deeper than 64, and anything after the document.
//
// What it accepts encoding/json accepts too, and it returns its own output
// unchanged. The result shares no memory with raw.
func Canonical(raw []byte, limit int) (json.RawMessage, error) {
	if limit > 0 && len(raw) > limit {
		return nil, &ParseError{ReasonMalformedBody, limit, fmt.Sprintf("send at most %d bytes", limit)}
	}
	p := parser{raw: raw, out: make([]byte, 0, len(raw))}
	if err := p.document(); err != nil {
		return nil, err
	}
	return p.out, nil
}

// Fingerprint is the SHA-256 of a mutation's canonical JSON: what it would
// change, whatever asked for it. Two requests for one effect that have the
// same fingerprint are the same request.
func Fingerprint(m Mutation) [32]byte {
	body := m.Body
	if len(body) == 0 {
		body = json.RawMessage("{}")
	}
	return sha256.Sum256(Compose(map[string]json.RawMessage{
		"body":    body,
		"id":      appendString(nil, m.ID),
		"op":      appendString(nil, string(m.Op)),
		"subject": appendString(nil, m.Subject),
		"type":    appendString(nil, m.Type),
	}))
}

// parser reads raw once, from front to back, and writes the canonical text as
// it goes. An object's members are put in order when the object ends; nesting
// is limited, so that the whole stays linear in the input but for the sort.
type parser struct {
	raw    []byte
	pos    int
	depth  int
	out    []byte
	digits []byte // scratch of scanMantissa
	text   []byte // scratch of scanString
	top    []member
}

// member is one name and value of an object, as places in the output.
type member struct {
	name       string
	offset     int // of the name in the input
	start, end int // of name and value in the output
	value      int // where the value starts
}

func (p *parser) document() error {
	if bytes.HasPrefix(p.raw, []byte("\xef\xbb\xbf")) {
		return p.fail(0, "send the document without a byte order mark")
	}
	p.space()
	if err := p.value(); err != nil {
		return err
	}
	p.space()
	if p.pos < len(p.raw) {
		return p.fail(p.pos, "send one document and nothing after it")
	}
	return nil
}

func (p *parser) value() error {
	switch c := p.peek(); {
	case c == '{':
		return p.nested((*parser).object)
	case c == '[':
		return p.nested((*parser).array)
	case c == '"':
		return p.stringValue()
	case c == '-' || isDigit(c):
		return p.scanNumber()
	case p.pos >= len(p.raw):
		return p.fail(p.pos, "the document ends too early; send all of it")
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(p.raw[p.pos:], []byte(word)) {
			p.pos += len(word)
			p.out = append(p.out, word...)
			return nil
		}
	}
	return p.fail(p.pos, "write a JSON value here")
}

func (p *parser) nested(read func(*parser) error) error {
	if p.depth == maxDepth {
		return p.fail(p.pos, fmt.Sprintf("nest at most %d arrays and objects", maxDepth))
	}
	p.depth++
	defer func() { p.depth-- }()
	return read(p)
}

func (p *parser) array() error {
	p.pos++
	p.out = append(p.out, '[')
	p.space()
	for first := true; !p.accept(']'); first = false {
		if !first {
			if !p.accept(',') {
				return p.fail(p.pos, "write a comma or ] after an element")
			}
			p.out = append(p.out, ',')
			p.space()
		}
		if err := p.value(); err != nil {
			return err
		}
		p.space()
	}
	p.out = append(p.out, ']')
	return nil
}

func (p *parser) object() error {
	p.pos++
	p.out = append(p.out, '{')
	body := len(p.out)
	var members []member
	p.space()
	for first := true; !p.accept('}'); first = false {
		if !first {
			if !p.accept(',') {
				return p.fail(p.pos, "write a comma or } after a member")
			}
			p.out = append(p.out, ',')
			p.space()
		}
		m, err := p.member()
		if err != nil {
			return err
		}
		members = append(members, m)
		p.space()
	}
	if err := p.order(body, members); err != nil {
		return err
	}
	p.out = append(p.out, '}')
	if p.depth == 1 {
		p.top = members
	}
	return nil
}

func (p *parser) member() (member, error) {
	m := member{offset: p.pos, start: len(p.out)}
	if p.peek() != '"' {
		return m, p.fail(p.pos, "write a name in double quotes")
	}
	name, err := p.scanString()
	if err != nil {
		return m, err
	}
	m.name = string(name)
	p.out = append(appendString(p.out, m.name), ':')
	m.value = len(p.out)
	p.space()
	if !p.accept(':') {
		return m, p.fail(p.pos, "write a colon after the name")
	}
	p.space()
	err = p.value()
	m.end = len(p.out)
	return m, err
}

// order sorts the members, whose text starts at body, by name and refuses a
// name that stands there twice.
func (p *parser) order(body int, members []member) error {
	byName := func(a, b member) int { return compareUTF16(a.name, b.name) }
	sorted := slices.IsSortedFunc(members, byName)
	if !sorted {
		slices.SortStableFunc(members, byName)
	}
	for i := 1; i < len(members); i++ {
		if members[i].name == members[i-1].name {
			return p.fail(members[i].offset, "send each name of an object once")
		}
	}
	if sorted {
		return nil
	}
	text := slices.Clone(p.out[body:])
	p.out = p.out[:body]
	for i := range members {
		m := &members[i]
		if i > 0 {
			p.out = append(p.out, ',')
		}
		from := len(p.out)
		p.out = append(p.out, text[m.start-body:m.end-body]...)
		m.value, m.end, m.start = from+m.value-m.start, len(p.out), from
	}
	return nil
}

func (p *parser) stringValue() error {
	s, err := p.scanString()
	if err != nil {
		return err
	}
	p.out = appendString(p.out, s)
	return nil
}

// peek is the next byte, or NUL, which no grammar here accepts, at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.raw) {
		return p.raw[p.pos]
	}
	return 0
}

func (p *parser) accept(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	return true
}

func (p *parser) space() {
	for p.pos < len(p.raw) {
		switch p.raw[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) fail(at int, msg string) error {
	return &ParseError{Reason: ReasonMalformedBody, Offset: min(at, len(p.raw)), Msg: msg}
}
