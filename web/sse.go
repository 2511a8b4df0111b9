package web

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"sluis/views/i18n"
)

const (
	heartbeat   = 15 * time.Second
	streamRetry = 2 * time.Second
	// streamGap is the least time between two renderings of one stream, so
	// that a burst of changes costs a few renderings and not one each.
	streamGap = 250 * time.Millisecond
	// streamEnded is the event that tells the browser that the session is over.
	streamEnded = "signed-out"
)

// Send writes one event. With an empty name the fragment is swapped into the
// page by htmx: whole elements in views.Swap, each with its own target. With a
// name it becomes a DOM event of that name on the stream's element, the
// fragment being its data.
type Send func(event string, fragment templ.Component) error

// SSE holds the request open as an event stream. render is called at once, and
// so also after each reconnection, and then whenever one of the topics has
// been published; it sends whole fragments, never deltas. Its ctx carries the
// person's language and the instant of the rendering, which is also c.Now.
// SSE returns nil when the client goes away, the server stops, or the session
// ends.
func (c *Context) SSE(topics []string, render func(ctx context.Context, send Send) error) error {
	stream, err := c.openStream()
	if err != nil {
		return err
	}
	sub := c.server.config.Hub.Subscribe(append([]string{sessionTopic(c.session.ID)}, topics...)...)
	defer sub.Close()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		alive, err := c.server.config.Sessions.Alive(stream.ctx, c.session.ID)
		if err != nil {
			return c.streamEnd(stream, err)
		}
		if !alive {
			return c.streamEnd(stream, stream.send(streamEnded, templ.NopComponent))
		}
		c.Now = c.server.config.Now()
		ctx := i18n.Context(stream.ctx, i18n.Lang(stream.ctx), c.server.config.Zone, c.Now)
		if err := render(ctx, stream.sender(ctx)); err != nil {
			return c.streamEnd(stream, err)
		}
		if !c.streamWait(stream, sub, beat) {
			return nil
		}
	}
}

// streamWait returns true when it is time to render again, false when the
// stream is over.
func (c *Context) streamWait(s *stream, sub *Subscription, beat *time.Ticker) bool {
	gap := time.NewTimer(streamGap)
	defer gap.Stop()
	select {
	case <-gap.C:
	case <-s.ctx.Done():
		return false
	case <-c.server.closing:
		return false
	}
	for {
		select {
		case <-sub.C:
			return true
		case <-beat.C:
			if s.comment() != nil {
				return false
			}
			return true
		case <-s.ctx.Done():
			return false
		case <-c.server.closing:
			return false
		}
	}
}

// streamEnd logs why a stream broke off. The header is out, so there is no
// error page; the browser reconnects.
func (c *Context) streamEnd(s *stream, err error) error {
	if err != nil && s.ctx.Err() == nil {
		c.server.config.Log.WarnContext(s.ctx, "event stream ended", "request_id", c.RequestID,
			"path", c.Request().URL.Path, "error", err)
	}
	return nil
}

type stream struct {
	ctx     context.Context
	w       http.ResponseWriter
	control *http.ResponseController
	id      int64
}

// openStream lifts the deadlines and sends the header. Events are numbered
// from the client's Last-Event-ID on.
func (c *Context) openStream() (*stream, error) {
	w := c.Response()
	s := &stream{ctx: c.Ctx(), w: w, control: http.NewResponseController(w.Writer)}
	if err := s.control.SetWriteDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	if n, err := strconv.ParseInt(c.Request().Header.Get("Last-Event-ID"), 10, 64); err == nil && n > 0 {
		s.id = n
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if _, err := fmt.Fprintf(w, "retry: %d\n\n", streamRetry.Milliseconds()); err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	return s, s.flush()
}

func (s *stream) sender(ctx context.Context) Send {
	return func(event string, fragment templ.Component) error { return s.write(ctx, event, fragment) }
}

func (s *stream) send(event string, fragment templ.Component) error {
	return s.write(s.ctx, event, fragment)
}

// write renders into a buffer first, so that a failing fragment sends nothing.
func (s *stream) write(ctx context.Context, event string, fragment templ.Component) error {
	var body bytes.Buffer
	if err := fragment.Render(ctx, &body); err != nil {
		return fmt.Errorf("render event: %w", err)
	}
	s.id++
	var out bytes.Buffer
	fmt.Fprintf(&out, "id: %d\n", s.id)
	if event != "" {
		fmt.Fprintf(&out, "event: %s\n", event)
	}
	for line := range bytes.Lines(append(body.Bytes(), '\n')) {
		out.WriteString("data: ")
		out.Write(bytes.TrimRight(line, "\r\n"))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return s.flush()
}

func (s *stream) comment() error {
	if _, err := s.w.Write([]byte(": alive\n\n")); err != nil {
		return fmt.Errorf("write heartbeat: %w", err)
	}
	return s.flush()
}

func (s *stream) flush() error {
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("flush event stream: %w", err)
	}
	return nil
}

// sessionTopic wakes the streams of one session when it ends.
func sessionTopic(token string) string { return "session/" + string(tokenHash(token)) }
