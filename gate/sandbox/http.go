package sandbox

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sluis/gate"
)

// The problem types that callers branch on.
const (
	// ProblemKeyReused is the type of the answer to a key that came with
	// another request before.
	ProblemKeyReused = "urn:sluis:problem:key-reused"
)

// Problem is an RFC 9457 problem document, and the error that carries it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

func problem(status int, typ, detail string) *Problem {
	if typ == "" {
		typ = "about:blank"
	}
	return &Problem{typ, http.StatusText(status), status, detail}
}

// Handler serves the API that the package comment describes.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{type}", s.change(gate.OpCreate))
	mux.HandleFunc("POST /v1/{type}/{id}", s.change(gate.OpCreate))
	mux.HandleFunc("PATCH /v1/{type}/{id}", s.change(gate.OpUpdate))
	mux.HandleFunc("DELETE /v1/{type}/{id}", s.change(gate.OpDelete))
	mux.HandleFunc("GET /v1/{type}/{id}", s.read("get", s.getEntity))
	mux.HandleFunc("GET /v1/live", s.read("live", s.getLive))
	mux.HandleFunc("GET /v1/keys/{key}", s.read("lookup", s.getKey))
	mux.HandleFunc("GET /v1/health", s.getHealth)
	mux.HandleFunc("POST /v1/faults", s.postFaults)
	mux.HandleFunc("DELETE /v1/faults", s.deleteFaults)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", s.now().Format(http.TimeFormat))
		if !s.allows(r) {
			writeProblem(w, problem(http.StatusUnauthorized, "", "a bearer token is needed"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	})
}

func (s *System) allows(r *http.Request) bool {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return s.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

func (s *System) change(op gate.Op) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := readChange(op, r)
		if err != nil {
			writeProblem(w, err)
			return
		}
		s.countSend(c.Key)
		hits := s.hit(string(op), c.Type, c.Key)
		if err := s.before(hits); err != nil {
			writeProblem(w, err)
			return
		}
		a, err := s.apply(c)
		if err == nil {
			err = s.after(hits)
		}
		if err != nil {
			writeProblem(w, err)
			return
		}
		if a.replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		writeBody(w, a.status, "application/json", a.body)
	}
}

func readChange(op gate.Op, r *http.Request) (Change, error) {
	c := Change{Op: op, Type: r.PathValue("type"), ID: r.PathValue("id"), Actor: r.Header.Get("X-Actor")}
	if len(c.Actor) > 200 {
		return c, problem(http.StatusBadRequest, "", "X-Actor is longer than 200 bytes")
	}
	key, ok := parseKey(r.Header.Values("Idempotency-Key"))
	if !ok {
		return c, problem(http.StatusBadRequest, "", "Idempotency-Key is not one string")
	}
	c.Key = key
	if m := r.Header.Get("If-Match"); m != "" {
		v, err := strconv.ParseInt(strings.Trim(m, `"`), 10, 64)
		if err != nil {
			return c, problem(http.StatusBadRequest, "", `If-Match is not a quoted version`)
		}
		c.IfVersion = &v
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return c, problem(http.StatusRequestEntityTooLarge, "", "the body cannot be read: "+err.Error())
	}
	c.Body = body
	return c, nil
}

// parseKey reads an RFC 8941 string, or takes a bare value as it is.
func parseKey(values []string) (string, bool) {
	if len(values) == 0 {
		return "", true
	}
	v := values[0]
	if len(values) > 1 || v == "" || len(v) > 300 {
		return "", false
	}
	if v[0] != '"' {
		return v, true
	}
	var out []byte
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '"':
			return string(out), i == len(v)-1 && len(out) > 0
		case '\\':
			if i++; i >= len(v) || v[i] != '"' && v[i] != '\\' {
				return "", false
			}
		}
		out = append(out, v[i])
	}
	return "", false
}

// read wraps a read with the faults that name its operation.
func (s *System) read(op string, get func(*http.Request) (int, any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		hits := s.hit(op, r.PathValue("type"), r.PathValue("key"))
		err := s.before(hits)
		if err == nil {
			err = s.after(hits)
		}
		if err != nil {
			writeProblem(w, err)
			return
		}
		status, v, err := get(r)
		if err != nil {
			writeProblem(w, err)
			return
		}
		writeJSON(w, status, v)
	}
}

func (s *System) getEntity(r *http.Request) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.world.entities[entityKey{r.PathValue("type"), r.PathValue("id")}]
	if !ok {
		return 0, nil, problem(http.StatusNotFound, "", "no such entity")
	}
	return http.StatusOK, documentOf(e), nil
}

func (s *System) getLive(r *http.Request) (int, any, error) {
	limit := maxPage
	if v := r.FormValue("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return 0, nil, problem(http.StatusBadRequest, "", "limit is not a positive number")
		}
		limit = min(n, maxPage)
	}
	page, next, err := s.live(r.FormValue("after"), limit)
	if err != nil {
		return 0, nil, problem(http.StatusBadRequest, "", err.Error())
	}
	docs := make([]document, len(page))
	for i, e := range page {
		docs[i] = documentOf(e)
	}
	return http.StatusOK, map[string]any{"entities": docs, "next": next}, nil
}

func (s *System) getKey(r *http.Request) (int, any, error) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.expire(now.Add(-s.retention))
	known, ok := s.world.keys[r.PathValue("key")]
	if !ok {
		return http.StatusNotFound, map[string]any{"applied": false, "known_since": s.world.knownSince}, nil
	}
	var d document
	if err := json.Unmarshal(known.answer, &d); err != nil {
		return 0, nil, problem(http.StatusInternalServerError, "", "stored answer cannot be read")
	}
	return http.StatusOK, map[string]any{"applied": true, "ref": d.ID, "version": d.Version, "entity": d}, nil
}

func (s *System) getHealth(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	v := struct {
		Status        string    `json:"status"`
		Entities      int       `json:"entities"`
		Keys          int       `json:"keys"`
		KnownSince    time.Time `json:"known_since"`
		DoubleApplied []string  `json:"double_applied"`
	}{"ok", len(s.world.entities), len(s.world.keys), s.world.knownSince, append([]string{}, s.world.doubled...)}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, v)
}

func (s *System) postFaults(w http.ResponseWriter, r *http.Request) {
	var faults []Fault
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	err := in.Decode(&faults)
	if err == nil {
		err = s.SetFaults(faults)
	}
	if err != nil {
		writeProblem(w, problem(http.StatusBadRequest, "", err.Error()))
		return
	}
	s.log.Info("faults set", "count", len(faults))
	w.WriteHeader(http.StatusNoContent)
}

func (s *System) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	if err := s.SetFaults(nil); err != nil {
		writeProblem(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func writeProblem(w http.ResponseWriter, err error) {
	var p *Problem
	if !errors.As(err, &p) {
		p = problem(http.StatusInternalServerError, "", "internal error")
	}
	body, _ := encode(p) // strings and a number: cannot fail
	writeBody(w, p.Status, "application/problem+json", body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		writeProblem(w, err)
		return
	}
	writeBody(w, status, "application/json", body)
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that has gone away gets nothing; the key tells it later
}
