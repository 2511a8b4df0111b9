package snapshots

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"sluis/gate"
)

// The shapes of a row that sends nothing.
const (
	shapeAdded   = "added"
	shapeRemoved = "removed"
	shapeChanged = "changed"
)

// groupKey names the like rows that a person reads as one line: the same kind,
// op, type and changed fields. It is safe in a URL's path.
func groupKey(r Row) string {
	shape := string(r.Op)
	if r.Op == opNone {
		shape = shapeOf(r)
	}
	fields := rowFields(r)
	digest := sha256.Sum256([]byte(r.EntityType + "\x00" + strings.Join(fields, "\x00")))
	return strings.Join([]string{string(r.Kind), shape, slug(r.EntityType), hex.EncodeToString(digest[:4])}, "-")
}

// shapeOf says how live stands to base.
func shapeOf(r Row) string {
	switch {
	case r.Base == nil:
		return shapeAdded
	case r.Live == nil:
		return shapeRemoved
	}
	return shapeChanged
}

// rowFields lists the fields that a row is about: what an update sets, or
// where live differs from base. Creates and deletes are about the whole.
func rowFields(r Row) []string {
	switch {
	case r.Op == gate.OpUpdate:
		var names []string
		for _, d := range gate.Diff(nil, r.Body) { // a null removes a field: it counts
			names = append(names, d.Name)
		}
		return names
	case r.Kind == RowOutside && shapeOf(r) == shapeChanged:
		return changed(r.Base, r.Live)
	}
	return nil
}

// slug keeps letters, digits and underscores; the digest keeps types apart.
func slug(s string) string {
	out := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_':
			return c
		}
		return -1
	}, s)
	if len(out) > 32 {
		out = out[:32]
	}
	return out
}
