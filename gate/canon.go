package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
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

// scanString reads a string and returns its content, valid until the next call.
func (p *parser) scanString() ([]byte, error) {
	p.pos++
	p.text = p.text[:0]
	for p.pos < len(p.raw) {
		switch c := p.raw[p.pos]; {
		case c == '"':
			p.pos++
			return p.text, nil
		case c == '\\':
			if err := p.scanEscape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, p.fail(p.pos, "escape the control character, or leave it out")
		case c < utf8.RuneSelf:
			p.text = append(p.text, c)
			p.pos++
		default:
			r, n := utf8.DecodeRune(p.raw[p.pos:])
			if r == utf8.RuneError && n == 1 {
				return nil, p.fail(p.pos, "send valid UTF-8")
			}
			p.text = append(p.text, p.raw[p.pos:p.pos+n]...)
			p.pos += n
		}
	}
	return nil, p.fail(p.pos, "close the string with a double quote")
}

func (p *parser) scanEscape() error {
	start := p.pos
	p.pos++
	c := p.peek()
	p.pos++
	switch c {
	case '"', '\\', '/':
		p.text = append(p.text, c)
	case 'b':
		p.text = append(p.text, '\b')
	case 'f':
		p.text = append(p.text, '\f')
	case 'n':
		p.text = append(p.text, '\n')
	case 'r':
		p.text = append(p.text, '\r')
	case 't':
		p.text = append(p.text, '\t')
	case 'u':
		return p.scanUnicode(start)
	default:
		return p.fail(start, `use one of the escapes \" \\ \/ \b \f \n \r \t \u`)
	}
	return nil
}

// scanUnicode reads what follows \u, and for a high surrogate its other half.
func (p *parser) scanUnicode(start int) error {
	r, ok := p.hex4()
	if !ok {
		return p.fail(start, `write four hexadecimal digits after \u`)
	}
	if r == 0 {
		return p.fail(start, "leave out the NUL character: it cannot be stored")
	}
	if utf16.IsSurrogate(r) {
		if p.accept('\\') && p.accept('u') {
			low, ok := p.hex4()
			if !ok {
				return p.fail(start, `write four hexadecimal digits after \u`)
			}
			r = utf16.DecodeRune(r, low)
		} else {
			r = utf8.RuneError
		}
		if r == utf8.RuneError {
			return p.fail(start, "send both halves of a surrogate pair, high before low")
		}
	}
	p.text = utf8.AppendRune(p.text, r)
	return nil
}

func (p *parser) hex4() (rune, bool) {
	if len(p.raw)-p.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range p.raw[p.pos : p.pos+4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.pos += 4
	return r, true
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

// appendString writes s as RFC 8785 section 3.2.2.2 says: only the quotation
// mark, the backslash and the control characters below U+0020 are escaped.
func appendString[S string | []byte](out []byte, s S) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c >= 0x20:
			out = append(out, c)
		case c == '\b':
			out = append(out, '\\', 'b')
		case c == '\t':
			out = append(out, '\\', 't')
		case c == '\n':
			out = append(out, '\\', 'n')
		case c == '\f':
			out = append(out, '\\', 'f')
		case c == '\r':
			out = append(out, '\\', 'r')
		default:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(out, '"')
}

// compareUTF16 orders UTF-8 strings by their UTF-16 code units, as RFC 8785
// section 3.2.3 asks. That differs from byte order in one case only: beyond
// U+FFFF (first byte F0 and up) sorts before U+E000 to U+FFFF (EE and EF),
// because a surrogate is less than U+E000.
func compareUTF16(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
			x, y = y, x
		}
		if x < y {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}
