// Package source reads what providers send: where in a payload the event's
// account, id, time and kind stand. It decides nothing; a field that is
// missing or of the wrong sort is left empty, and the gate judges that.
package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluis/gate"
)

// Webhook finds an event's identity in a JSON payload by JSON Pointers
// (RFC 6901). An empty pointer means that the provider has no such field.
type Webhook struct {
	AccountPtr  string // the provider's account
	EventIDPtr  string // the provider's own event id, never the delivery's
	OccurredPtr string // when it happened, as the provider writes it
	KindPtr     string // what happened
}

var _ gate.Source = Webhook{}

// Care is where the roster webhooks of the care integration have their fields.
func Care() Webhook {
	return Webhook{AccountPtr: "/account", EventIDPtr: "/event_id", OccurredPtr: "/occurred_at", KindPtr: "/kind"}
}

// Validate reports every pointer that is not one.
func (w Webhook) Validate() error {
	var err error
	for name, p := range map[string]string{
		"account": w.AccountPtr, "event id": w.EventIDPtr, "occurred": w.OccurredPtr, "kind": w.KindPtr,
	} {
		if _, perr := splitPointer(p); perr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, perr))
		}
	}
	return err
}

// Identify implements gate.Source. Strings are taken as they are and numbers
// as they are written; anything else counts as missing.
func (w Webhook) Identify(raw json.RawMessage) (ref gate.EventRef, kind string) {
	return gate.EventRef{
		Account:    textAt(raw, w.AccountPtr),
		ID:         textAt(raw, w.EventIDPtr),
		OccurredAt: textAt(raw, w.OccurredPtr),
	}, textAt(raw, w.KindPtr)
}

// textAt is the string or number that the pointer leads to, else "".
func textAt(raw json.RawMessage, pointer string) string {
	tokens, err := splitPointer(pointer)
	if err != nil || pointer == "" {
		return ""
	}
	for _, token := range tokens {
		if raw = step(raw, token); raw == nil {
			return ""
		}
	}
	if c := raw[0]; c == '"' || c == '-' || '0' <= c && c <= '9' {
		return gate.Text(raw)
	}
	return ""
}

// step follows one reference token into an object or array; nil when it leads
// nowhere. Names match exactly: encoding/json's struct matching ignores case.
func step(raw json.RawMessage, token string) json.RawMessage {
	switch {
	case len(raw) == 0:
		return nil
	case raw[0] == '{':
		fields, err := gate.Fields(raw)
		if err != nil || len(fields[token]) == 0 {
			return nil
		}
		return fields[token]
	case raw[0] == '[':
		var items []json.RawMessage
		n, err := strconv.Atoi(token)
		if err != nil || strconv.Itoa(n) != token || json.Unmarshal(raw, &items) != nil || n < 0 || n >= len(items) {
			return nil
		}
		return items[n]
	}
	return nil
}

// splitPointer reads RFC 6901 section 3 and undoes its escapes.
func splitPointer(p string) ([]string, error) {
	if p == "" {
		return nil, nil
	}
	if p[0] != '/' {
		return nil, fmt.Errorf("pointer %q does not begin with /", p)
	}
	tokens := strings.Split(p[1:], "/")
	for i, t := range tokens {
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(t)
		if strings.Contains(plain, "~") {
			return nil, fmt.Errorf("pointer %q has a ~ that is neither ~0 nor ~1", p)
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens, nil
}
