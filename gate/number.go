package gate

import "strconv"

// Limits of a number that is kept exactly.
const (
	maxDigits   = 64   // significant digits; the longest exact text of a common double such as 0.1 has 55
	minExponent = -324 // of the first digit: below it a reader with doubles sees zero
	maxIntPart  = 19   // digits in an int64
	expLimit    = 1 << 40
)

// scanNumber reads one number by the grammar of RFC 8259 section 6 and writes
// its exact value in the layout of RFC 8785 section 3.2.2.3. Unlike there the
// value never passes through a double: 9007199254740993 stays what it is, and
// what cannot be kept exactly is refused as unsafe_number, integral or not:
// a magnitude beyond int64, more than 64 digits, an exponent below -324.
// Equal values get equal text, so 1.0 and 1, and 1e2 and 100, are one number.
func (p *parser) scanNumber() error {
	start := p.pos
	negative := p.accept('-')
	digits, point, err := p.scanMantissa()
	if err != nil {
		return err
	}
	exp, err := p.scanExponent()
	if err != nil {
		return err
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	if len(digits) == 0 {
		p.out = append(p.out, '0')
		return nil
	}
	point += exp
	if len(digits) > maxDigits || point-1 < minExponent || !fitsInt64(negative, digits, point) {
		return p.unsafeNumber(start)
	}
	if negative {
		p.out = append(p.out, '-')
	}
	p.out = appendDecimal(p.out, digits, int(point))
	return nil
}

// scanMantissa returns the significant digits without leading zeros, and the
// place of the decimal point: the value is 0.digits times ten to that power.
// More digits than allowed stand for a number that has too many: they are not
// its own, and so a long number costs no memory.
func (p *parser) scanMantissa() (digits []byte, point int64, err error) {
	digits = p.digits[:0]
	zeros := int64(0) // zeros seen since the last significant digit
	keep := func(c byte) {
		switch {
		case c == '0':
			zeros++
			return
		case len(digits) == 0:
			zeros = 0
		case int64(len(digits))+zeros >= maxDigits:
			for len(digits) <= maxDigits {
				digits = append(digits, c)
			}
			return
		}
		for ; zeros > 0; zeros-- {
			digits = append(digits, '0')
		}
		digits = append(digits, c)
	}
	switch c := p.peek(); {
	case c == '0':
		p.pos++
		if isDigit(p.peek()) {
			return nil, 0, p.fail(p.pos, "write the number without a leading zero")
		}
	case isDigit(c):
		for ; isDigit(p.peek()); p.pos++ {
			keep(p.raw[p.pos])
			point++
		}
	default:
		return nil, 0, p.fail(p.pos, "write a digit here")
	}
	if p.accept('.') {
		if !isDigit(p.peek()) {
			return nil, 0, p.fail(p.pos, "write a digit after the decimal point")
		}
		for ; isDigit(p.peek()); p.pos++ {
			if len(digits) == 0 && p.raw[p.pos] == '0' {
				point--
			}
			keep(p.raw[p.pos])
		}
	}
	p.digits = digits
	return digits, point, nil
}

// scanExponent returns the exponent, cut off far outside what is accepted.
func (p *parser) scanExponent() (int64, error) {
	if c := p.peek(); c != 'e' && c != 'E' {
		return 0, nil
	}
	p.pos++
	negative := p.peek() == '-'
	if c := p.peek(); c == '-' || c == '+' {
		p.pos++
	}
	if !isDigit(p.peek()) {
		return 0, p.fail(p.pos, "write a digit in the exponent")
	}
	exp := int64(0)
	for ; isDigit(p.peek()); p.pos++ {
		if exp < expLimit {
			exp = exp*10 + int64(p.raw[p.pos]-'0')
		}
	}
	if negative {
		exp = -exp
	}
	return exp, nil
}

func (p *parser) unsafeNumber(at int) error {
	return &ParseError{
		Reason: ReasonUnsafeNumber,
		Offset: at,
		Msg:    "this number cannot be kept exactly; send it as a string, or within 64 bits and 64 digits",
	}
}

// fitsInt64 reports whether 0.digits times ten to the power point lies within
// the range of an int64.
func fitsInt64(negative bool, digits []byte, point int64) bool {
	if point < maxIntPart {
		return true
	}
	if point > maxIntPart {
		return false
	}
	var whole [maxIntPart]byte
	n := copy(whole[:], digits)
	for ; n < maxIntPart; n++ {
		whole[n] = '0'
	}
	v, err := strconv.ParseUint(string(whole[:]), 10, 64)
	if err != nil {
		return false
	}
	limit := uint64(1<<63 - 1)
	if negative {
		limit++
	}
	return v < limit || v == limit && len(digits) <= maxIntPart
}

// appendDecimal lays out 0.digits times ten to the power point as ECMAScript
// does (Number::toString, steps for radix 10), with exact digits. point is at
// most 19, so that the form with a positive exponent does not occur.
func appendDecimal(out, digits []byte, point int) []byte {
	k := len(digits)
	switch {
	case point >= k:
		out = append(out, digits...)
		for ; k < point; k++ {
			out = append(out, '0')
		}
		return out
	case point > 0:
		out = append(out, digits[:point]...)
		out = append(out, '.')
		return append(out, digits[point:]...)
	case point > -6:
		out = append(out, '0', '.')
		for ; point < 0; point++ {
			out = append(out, '0')
		}
		return append(out, digits...)
	}
	out = append(out, digits[0])
	if k > 1 {
		out = append(out, '.')
		out = append(out, digits[1:]...)
	}
	out = append(out, 'e')
	return strconv.AppendInt(out, int64(point-1), 10)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
