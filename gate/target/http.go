package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"sluis/gate"
)

const (
	maxAnswer = 2 << 20  // bytes of the answer to a change, a look-up or a read
	maxLive   = 64 << 20 // bytes of a page of the live state
	maxDetail = 200      // bytes of a target's own words that are kept

	// clockMargin is how long before the reservation a key memory must reach
	// for its silence to prove absence: the two clocks are not the same clock.
	clockMargin = time.Minute
)

// DefiniteStatuses are the refusals that mean "not applied" when Config names
// none. 409 is not among them: it is also the answer to a key in flight.
var DefiniteStatuses = []int{400, 401, 403, 404, 410, 412, 422}

// Config says how to reach a target.
type Config struct {
	BaseURL   string // "https://care.example", without /v1
	Token     string // bearer token; empty sends none
	KeyHeader string // "" means Idempotency-Key
	// KeyQuoted sends the key as an RFC 8941 string, as the Idempotency-Key
	// draft wants it; false sends it bare.
	KeyQuoted bool
	Timeout   time.Duration // for a whole exchange; 0 means 10 s
	MaxConns  int           // open connections; 0 means 64
	// KeyRetention is how long the target promises to remember a key; it is
	// used where a look-up does not say from when its memory is complete.
	KeyRetention time.Duration
	Definite     []int // 4xx that mean "not applied"; nil means DefiniteStatuses
}

// HTTP is a gate.Target over HTTP. It is safe for concurrent use.
type HTTP struct {
	config Config
	base   *url.URL
	client *http.Client
}

var _ gate.Target = (*HTTP)(nil)

// New checks the configuration and reports everything that is wrong with it at
// once. It does not connect.
func New(c Config) (*HTTP, error) {
	c.KeyHeader = cmpOr(c.KeyHeader, "Idempotency-Key")
	c.Timeout = cmpOr(c.Timeout, 10*time.Second)
	c.MaxConns = cmpOr(c.MaxConns, 64)
	if c.Definite == nil {
		c.Definite = DefiniteStatuses
	}
	base, err := url.Parse(c.BaseURL)
	if err == nil && (base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil) {
		err = fmt.Errorf("base URL %q is not http(s)://host", c.BaseURL)
	}
	if c.Timeout < 0 || c.MaxConns < 0 || c.KeyRetention < 0 {
		err = errors.Join(err, errors.New("timeout, connections and key retention cannot be negative"))
	}
	for _, status := range c.Definite {
		if status < 400 || status > 499 {
			err = errors.Join(err, fmt.Errorf("status %d cannot be definite: only a 4xx can", status))
		}
	}
	if strings.ContainsAny(c.Token+c.KeyHeader, "\r\n ") {
		err = errors.Join(err, errors.New("token and key header must not hold spaces or line ends"))
	}
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	return &HTTP{c, base, newClient(c)}, nil
}

func newClient(c Config) *http.Client {
	dialer := &net.Dialer{Timeout: c.Timeout, KeepAlive: 15 * time.Second}
	return &http.Client{
		Timeout: c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return &countingConn{Conn: conn}, nil
			},
			// HTTP/1.1 only: HTTP/2 repeats requests by rules of its own.
			Protocols:              onlyHTTP1(),
			MaxConnsPerHost:        c.MaxConns,
			MaxIdleConnsPerHost:    c.MaxConns,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    c.Timeout,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
		},
	}
}

func onlyHTTP1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// Close closes the idle connections.
func (t *HTTP) Close() { t.client.CloseIdleConnections() }

// Apply sends one mutation once and classifies what came of it.
func (t *HTTP) Apply(ctx context.Context, s gate.Send) gate.Outcome {
	req, err := t.change(ctx, s)
	if err != nil {
		return gate.Outcome{Class: gate.Refused, Detail: err.Error()}
	}
	var w wire
	resp, err := t.client.Do(req.WithContext(httptrace.WithClientTrace(ctx, w.trace())))
	if err != nil {
		return gate.Outcome{Class: w.classOf(err), Detail: oneLine(err.Error())}
	}
	body, err := readAll(resp, maxAnswer)
	return t.classify(s, resp, body, err)
}

// change builds the request for s.
func (t *HTTP) change(ctx context.Context, s gate.Send) (*http.Request, error) {
	m := s.Mutation
	method, ok := map[gate.Op]string{
		gate.OpCreate: http.MethodPost, gate.OpUpdate: http.MethodPatch, gate.OpDelete: http.MethodDelete,
	}[m.Op]
	if !ok || m.Type == "" || m.ID == "" && m.Op != gate.OpCreate {
		return nil, fmt.Errorf("%s %s %q is not something this target can be sent", m.Op, m.Type, m.ID)
	}
	body := []byte(m.Body)
	if m.Op == gate.OpDelete {
		body = nil
	}
	segments := []string{"v1", m.Type}
	if m.ID != "" {
		segments = append(segments, m.ID)
	}
	req, err := t.request(ctx, method, t.at(segments...), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	key := s.Key.String()
	if t.config.KeyQuoted {
		key = `"` + key + `"`
	}
	req.Header.Set(t.config.KeyHeader, key)
	if s.IfVersion != nil {
		req.Header.Set("If-Match", `"`+strconv.FormatInt(*s.IfVersion, 10)+`"`)
	}
	if s.Actor != "" {
		req.Header.Set("X-Actor", s.Actor)
	}
	return req, nil
}

// at is the address of a path, each segment escaped.
func (t *HTTP) at(segments ...string) *url.URL {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = url.PathEscape(s)
		if s == "." || s == ".." {
			escaped[i] = strings.ReplaceAll(s, ".", "%2E") // never a step up
		}
	}
	return t.base.JoinPath().JoinPath(escaped...)
}

// request builds a request that net/http cannot repeat by itself.
func (t *HTTP) request(ctx context.Context, method string, u *url.URL, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), once{bytes.NewReader(body)})
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Accept", "application/json")
	if t.config.Token != "" {
		req.Header.Set("Authorization", "Bearer "+t.config.Token)
	}
	return req, nil
}

// once is a body without GetBody, and of a type that NewRequest knows no way
// to rewind.
type once struct{ io.Reader }

// classify applies design rule "definite" to an answer.
func (t *HTTP) classify(s gate.Send, resp *http.Response, body []byte, readErr error) gate.Outcome {
	out := gate.Outcome{Class: gate.Uncertain, Status: resp.StatusCode, Detail: detailOf(resp, body)}
	switch {
	case resp.StatusCode/100 == 2 && readErr != nil:
		out.Detail = oneLine("answered " + resp.Status + ", but the answer cannot be read: " + readErr.Error())
	case resp.StatusCode/100 == 2:
		out.Class, out.Ref, out.Entity = gate.Applied, s.Mutation.ID, nil
		if e, err := parseEntity(body); err == nil {
			out.Ref, out.Entity = e.ID, &e
		} else if out.Ref == "" {
			out.Ref = lastSegment(resp.Header.Get("Location"))
		}
		if s.Mutation.Op == gate.OpDelete {
			out.Entity = nil // nothing is there afterwards
		}
	case readErr == nil && keyReused(body):
		// May be our own earlier attempt: only a look-up can tell.
	case slices.Contains(t.config.Definite, resp.StatusCode):
		out.Class = gate.Refused
	}
	return out
}

// wire watches whether anything of a request reached the network.
type wire struct {
	got     atomic.Bool // a connection was handed to the request
	conn    atomic.Pointer[countingConn]
	before  int64
	unwrote atomic.Bool // writing ended with an error, and no byte had been written
}

func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			w.got.Store(true)
			if c := counted(info.Conn); c != nil {
				w.before = c.written.Load()
				w.conn.Store(c)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			c := w.conn.Load()
			w.unwrote.Store(info.Err != nil && c != nil && c.written.Load() == w.before)
		},
	}
}

// classOf is the class of a send that got no answer. Without a connection, or
// where writing is over and wrote nothing, the target cannot have applied it.
func (w *wire) classOf(error) gate.OutcomeClass {
	if !w.got.Load() || w.unwrote.Load() {
		return gate.Refused
	}
	return gate.Uncertain
}

// countingConn counts the bytes that were given to the network. A failed
// write counts as one byte at least: it may have sent something.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

// Write implements net.Conn.
func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(max(n, 1)))
	return n, err
}

// counted finds the counting connection below TLS.
func counted(c net.Conn) *countingConn {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = over.NetConn()
	}
	cc, _ := c.(*countingConn)
	return cc
}

func cmpOr[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
