package gate

import (
	"unicode"
	"unicode/utf8"
)

// cleanText reports whether s can be stored and shown: valid UTF-8 without
// control characters (Postgres text cannot hold a NUL).
func cleanText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}
