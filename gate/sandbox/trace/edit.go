package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sluis/gate"
)

// Find is the entity that the edit is about: of its type, with the fields of
// its match, and of several the one with the lowest id.
func (e Edit) Find(entities []gate.Entity) (found gate.Entity, ok bool) {
	for _, c := range entities {
		if e.matches(c) && (!ok || byID(c, found) < 0) {
			found, ok = c, true
		}
	}
	return found, ok
}

func (e Edit) matches(c gate.Entity) bool {
	fields, err := gate.Fields(c.State)
	if c.Type != e.Type || err != nil {
		return false
	}
	for name, want := range e.Match {
		if !bytes.Equal(fields[name], want) {
			return false
		}
	}
	return true
}

// EditOver makes edits by hand in a record system over HTTP, as the sandbox
// documents it: without a key, and past the gate. An edit whose entity is not
// there is an error.
func EditOver(baseURL, token string, live gate.Target) func(context.Context, Edit) error {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(ctx context.Context, e Edit) error {
		found, err := e.locate(ctx, live)
		if err != nil {
			return err
		}
		at := strings.TrimSuffix(baseURL, "/") + "/v1/" + url.PathEscape(found.Type) + "/" + url.PathEscape(found.ID)
		req, err := http.NewRequestWithContext(ctx, http.MethodPatch, at, bytes.NewReader(e.Set))
		if err != nil {
			return fmt.Errorf("edit: %w", err)
		}
		req.Header.Set("X-Actor", e.By)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("edit: %w", err)
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			said, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // for the message only
			return fmt.Errorf("edit %s %s: %s: %s", found.Type, found.ID, resp.Status, said)
		}
		return nil
	}
}

func (e Edit) locate(ctx context.Context, live gate.Target) (gate.Entity, error) {
	after := ""
	for {
		page, next, err := live.Live(ctx, after, livePage)
		if err != nil {
			return gate.Entity{}, fmt.Errorf("edit: %w", err)
		}
		if found, ok := e.Find(page); ok { // pages come in order of id
			return found, nil
		}
		if after = next; after == "" {
			match, _ := json.Marshal(e.Match) // read from JSON
			return gate.Entity{}, fmt.Errorf("edit: no %s with %s: %w", e.Type, match, gate.ErrNotFound)
		}
	}
}
