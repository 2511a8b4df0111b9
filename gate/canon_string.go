package gate

import (
	"unicode/utf16"
	"unicode/utf8"
)

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
