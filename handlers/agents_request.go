package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluis/gate"
)

// maxRequest is how large a mutation request may be, in bytes: a body and its
// envelope.
const maxRequest = gate.MaxBody + 64<<10

// readRequest reads a mutation request strictly: no unknown, doubled or
// misspelt name passes, since a dropped field would change what is meant.
func readRequest(body []byte) (gate.Request, error) {
	var req gate.Request
	top, err := readObject(body, "request", "event", "effect", "last", "agent", "run", "mutation", "basis", "evidence")
	if err != nil {
		return req, err
	}
	event, err := readObject(top["event"], "event", "account", "event_id", "occurred_at")
	if err != nil {
		return req, err
	}
	m, err := readObject(top["mutation"], "mutation", "op", "type", "id", "subject", "body")
	if err != nil {
		return req, err
	}
	var op string
	err = errors.Join(
		readString(event, "account", &req.Event.Account), readString(event, "event_id", &req.Event.ID),
		readString(event, "occurred_at", &req.Event.OccurredAt), readString(top, "effect", &req.Effect),
		readString(top, "agent", &req.Agent), readString(top, "run", &req.Run), readBool(top, "last", &req.Last),
		readString(m, "op", &op), readString(m, "type", &req.Mutation.Type), readString(m, "id", &req.Mutation.ID),
		readString(m, "subject", &req.Mutation.Subject), readBasis(top["basis"], &req), readEvidence(top["evidence"], &req))
	req.Mutation.Op = gate.Op(op)
	req.Mutation.Body = m["body"]
	if m["body"] == nil {
		if req.Mutation.Op != gate.OpDelete {
			err = errors.Join(err, errors.New("mutation.body is missing"))
		}
		req.Mutation.Body = json.RawMessage("{}")
	}
	return req, err
}

// readObject parses raw as an object that holds only the given names.
func readObject(raw []byte, what string, names ...string) (map[string]json.RawMessage, error) {
	if raw == nil {
		return nil, fmt.Errorf("%s is missing", what)
	}
	canonical, err := gate.Canonical(raw, maxRequest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	fields, err := gate.Fields(canonical)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for name := range fields {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s has no field %q; it has %s", what, name, strings.Join(names, ", "))
		}
	}
	return fields, nil
}

func readString(fields map[string]json.RawMessage, name string, into *string) error {
	raw, ok := fields[name]
	if !ok || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s must be a string", name)
	}
	return nil
}

func readBool(fields map[string]json.RawMessage, name string, into *bool) error {
	raw, ok := fields[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s must be true or false", name)
	}
	return nil
}

func readBasis(raw json.RawMessage, req *gate.Request) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	fields, err := readObject(raw, "basis", "type", "id", "version")
	if err != nil {
		return err
	}
	var b gate.Basis
	if err := errors.Join(readString(fields, "type", &b.Type), readString(fields, "id", &b.ID)); err != nil {
		return err
	}
	if err := json.Unmarshal(fields["version"], &b.Version); err != nil {
		return errors.New("basis.version must be a whole number")
	}
	req.Basis = &b
	return nil
}

func readEvidence(raw json.RawMessage, req *gate.Request) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, &req.Evidence); err != nil {
		return errors.New("evidence must be a list of ids")
	}
	return nil
}
