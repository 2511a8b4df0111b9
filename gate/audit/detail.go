package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Limits of a detail, in bytes of JSON.
const (
	maxDetail = 16 << 10
	maxMember = 1 << 10 // of a member, once the whole is too large
)

// encodeDetail is the one JSON text of a detail: names sorted, no spaces, only
// storable text. One that is above 16 KiB keeps its small members; each
// large one is replaced by its size and digest, and if that does not suffice,
// the whole is.
func encodeDetail(detail map[string]any) ([]byte, error) {
	if len(detail) == 0 {
		return []byte("{}"), nil
	}
	text, err := encode(detail)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(text, []byte(`\u0000`)) {
		if text, err = encodeCleaned(text); err != nil {
			return nil, err
		}
	}
	if len(text) <= maxDetail {
		return text, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("encode detail: %w", err)
	}
	short := make(map[string]any, len(members))
	for name, value := range members {
		short[name] = value
		if len(value) > maxMember {
			short[name] = leftOut(value)
		}
	}
	cut, err := encode(short)
	if err != nil || len(cut) <= maxDetail {
		return cut, err
	}
	return encode(leftOut(text))
}

// leftOut stands for text that is too large to keep.
func leftOut(text []byte) map[string]any {
	return map[string]any{"left_out_bytes": len(text), "left_out_sha256": hexDigest(text)}
}

// encode writes v as JSON; invalid UTF-8 becomes U+FFFD.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode detail: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// encodeCleaned replaces NUL in every string of a JSON text.
func encodeCleaned(text []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("encode detail: %w", err)
	}
	return encode(cleanValue(v))
}

func cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return clean(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
		return v
	case map[string]any:
		cleaned := make(map[string]any, len(v))
		for name, value := range v {
			cleaned[clean(name)] = cleanValue(value)
		}
		return cleaned
	}
	return v
}
