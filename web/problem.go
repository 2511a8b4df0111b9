package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// ProblemType is the media type of RFC 9457.
const ProblemType = "application/problem+json"

// Problem is an RFC 9457 problem document. It is an error, so that a handler
// can return it; Err is the cause, which is logged and never sent.
type Problem struct {
	Type       string // URI reference; "" means about:blank
	Title      string // "" means the status text
	Status     int
	Detail     string
	Extensions map[string]any // further members: key, state, reason
	RetryAfter time.Duration  // sent as Retry-After in whole seconds, rounded up
	Err        error
}

// Error returns the title and the cause, for the log.
func (p *Problem) Error() string {
	if p.Err == nil {
		return p.title()
	}
	return p.title() + ": " + p.Err.Error()
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

func (p *Problem) title() string {
	if p.Title == "" {
		return http.StatusText(p.Status)
	}
	return p.Title
}

// document is the JSON body; instance names the request in our log.
func (p *Problem) document(instance string) ([]byte, error) {
	doc := map[string]any{}
	maps.Copy(doc, p.Extensions)
	doc["type"], doc["title"], doc["status"], doc["instance"] = p.Type, p.title(), p.Status, instance
	if p.Type == "" {
		doc["type"] = "about:blank"
	}
	if p.Detail != "" {
		doc["detail"] = p.Detail
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("problem document: %w", err)
	}
	return body, nil
}

func retryAfter(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
