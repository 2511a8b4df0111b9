package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluis/gate"
)

// document is an entity as the target writes it.
type document struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Version   int64           `json:"version"`
	UpdatedAt time.Time       `json:"updated_at"`
	UpdatedBy string          `json:"updated_by"`
	State     json.RawMessage `json:"state"`
}

func (d document) entity() (gate.Entity, error) {
	if d.ID == "" || d.Type == "" {
		return gate.Entity{}, errors.New("the answer names no entity")
	}
	state, err := gate.Canonical(d.State, maxAnswer)
	if err != nil {
		return gate.Entity{}, fmt.Errorf("state of %s %s: %w", d.Type, d.ID, err)
	}
	return gate.Entity{
		Type: d.Type, ID: d.ID, Version: d.Version, State: state,
		UpdatedAt: d.UpdatedAt.UTC(), UpdatedBy: d.UpdatedBy,
	}, nil
}

func parseEntity(body []byte) (gate.Entity, error) {
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return gate.Entity{}, fmt.Errorf("answer: %w", err)
	}
	return d.entity()
}

// get reads one answer; a status other than 200 and 404 is an error.
func (t *HTTP) get(ctx context.Context, u *url.URL, limit int64) (resp *http.Response, body []byte, err error) {
	req, err := t.request(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Body = http.NoBody // a read may be repeated
	if resp, err = t.client.Do(req); err != nil {
		return nil, nil, fmt.Errorf("read target: %w", err)
	}
	if body, err = readAll(resp, limit); err != nil {
		return nil, nil, fmt.Errorf("read target: %w", err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
		return nil, nil, fmt.Errorf("read target: %s", detailOf(resp, body))
	}
	return resp, body, nil
}

// LookUp asks the target for a key that was reserved at since.
func (t *HTTP) LookUp(ctx context.Context, key gate.Key, since time.Time) gate.LookUp {
	resp, body, err := t.get(ctx, t.at("v1", "keys", key.String()), maxAnswer)
	if err != nil {
		return gate.LookUp{Class: gate.NoAnswer, Detail: oneLine(err.Error())}
	}
	var answer struct {
		Applied    *bool      `json:"applied"`
		Ref        string     `json:"ref"`
		KnownSince *time.Time `json:"known_since"`
		Entity     *document  `json:"entity"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Applied == nil {
		return gate.LookUp{Class: gate.NoAnswer, Detail: "the answer does not say whether the key was applied"}
	}
	if *answer.Applied != (resp.StatusCode == http.StatusOK) {
		return gate.LookUp{Class: gate.NoAnswer, Detail: "the answer contradicts its status"}
	}
	if !*answer.Applied {
		return t.absence(resp, answer.KnownSince, since)
	}
	found := gate.LookUp{Class: gate.Found, Ref: answer.Ref, Detail: "the target has applied this key"}
	if answer.Entity != nil {
		if e, err := answer.Entity.entity(); err == nil {
			found.Entity, found.Ref = &e, cmpOr(found.Ref, e.ID)
		}
	}
	return found
}

// absence judges whether the target's silence on a key proves anything.
func (t *HTTP) absence(resp *http.Response, known *time.Time, since time.Time) gate.LookUp {
	if known == nil && t.config.KeyRetention > 0 {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			from := date.Add(-t.config.KeyRetention)
			known = &from
		}
	}
	switch {
	case known == nil:
		return gate.LookUp{Class: gate.Forgotten, Detail: "the target does not say how far its key memory reaches back"}
	case known.Add(clockMargin).After(since):
		return gate.LookUp{Class: gate.Forgotten,
			Detail: "the target's key memory reaches back only to " + known.UTC().Format(time.RFC3339)}
	}
	return gate.LookUp{Class: gate.Absent, Detail: "the target has not applied this key"}
}

// Read returns one entity; gate.ErrNotFound when the target has none.
func (t *HTTP) Read(ctx context.Context, typ, id string) (gate.Entity, error) {
	resp, body, err := t.get(ctx, t.at("v1", typ, id), maxAnswer)
	if err != nil {
		return gate.Entity{}, err
	}
	if resp.StatusCode == http.StatusNotFound {
		if !isProblem(resp) {
			return gate.Entity{}, errors.New("read target: 404 without a problem document: is the address right?")
		}
		return gate.Entity{}, fmt.Errorf("%s %s: %w", typ, id, gate.ErrNotFound)
	}
	return parseEntity(body)
}

// Live returns a page of at most limit entities after the cursor, in (type,
// id) order, and the next cursor, empty at the end.
func (t *HTTP) Live(ctx context.Context, after string, limit int) ([]gate.Entity, string, error) {
	u := t.at("v1", "live")
	u.RawQuery = url.Values{"after": {after}, "limit": {strconv.Itoa(limit)}}.Encode()
	resp, body, err := t.get(ctx, u, maxLive)
	if err != nil {
		return nil, "", err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("live state: %s", detailOf(resp, body))
	}
	var page struct {
		Entities []document `json:"entities"`
		Next     string     `json:"next"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, "", fmt.Errorf("live state: %w", err)
	}
	if page.Next != "" && (page.Next == after || len(page.Entities) == 0) {
		return nil, "", errors.New("live state: the cursor does not move")
	}
	out := make([]gate.Entity, len(page.Entities))
	for i, d := range page.Entities {
		if out[i], err = d.entity(); err != nil {
			return nil, "", fmt.Errorf("live state: %w", err)
		}
	}
	return out, page.Next, nil
}

// readAll reads and closes the body; a longer one than limit is an error.
func readAll(resp *http.Response, limit int64) (body []byte, err error) {
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("the answer is longer than %d bytes", limit)
	}
	return body, err
}

// problem is what is read of an RFC 9457 document.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func isProblem(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/problem+json"
}

// keyReused recognises the "used with another request" answer by its problem
// type, whatever namespace it stands in.
func keyReused(body []byte) bool {
	var p problem
	if json.Unmarshal(body, &p) != nil {
		return false
	}
	return strings.HasSuffix(strings.ReplaceAll(p.Type, "_", "-"), "key-reused")
}

// detailOf is one line on an answer: its status, and what its problem document says.
func detailOf(resp *http.Response, body []byte) string {
	var p problem
	if isProblem(resp) && json.Unmarshal(body, &p) == nil && p.Detail != "" {
		return oneLine(resp.Status + ": " + p.Detail)
	}
	return oneLine(resp.Status)
}

func oneLine(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(strings.ReplaceAll(s, "\x00", "")), " "), "?")
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}

func lastSegment(location string) string {
	u, err := url.Parse(location)
	if err != nil || location == "" {
		return ""
	}
	return u.Path[strings.LastIndexByte(u.Path, '/')+1:]
}
