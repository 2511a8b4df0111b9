package web_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a-h/templ"

	"sluis/migrations/testdb"
	"sluis/views/i18n"
	"sluis/web"
	"sluis/web/webtest"
)

// live is a console with one event stream on a loopback port.
type live struct {
	*webtest.Console
	base   string
	stop   context.CancelFunc
	served chan error
	body   atomic.Value // string that the stream renders
}

func startLive(t *testing.T) *live {
	t.Helper()
	l := &live{served: make(chan error, 1)}
	l.body.Store("first\nline")
	l.Console = webtest.New(t, testdb.Pool(t), func(*webtest.Console) []web.Route {
		return []web.Route{
			{Method: "GET", Path: "/stream", Name: "stream", Allow: web.Everyone, Stream: true, Handler: func(c *web.Context) error {
				return c.SSE([]string{"items"}, func(_ context.Context, send web.Send) error {
					return send("", templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
						_, err := io.WriteString(w, l.body.Load().(string)+"\n"+i18n.Clock(ctx, i18n.Now(ctx)))
						return err
					}))
				})
			}},
			{Method: "POST", Path: "/signout", Name: "signout", Allow: web.Everyone, Handler: func(c *web.Context) error {
				if err := c.SignOut(); err != nil {
					return err
				}
				return c.Redirect("/")
			}},
		}
	}, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.base = stop, "http://"+ln.Addr().String()
	go func() { l.served <- l.Server.Serve(ctx, ln) }()
	t.Cleanup(stop)
	return l
}

// open opens the stream with the client's session.
func (l *live) open(t *testing.T, client *webtest.Client, lastID string) *bufio.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.base+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(client.Cookie)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := resp.Body.Close(); err != nil {
			t.Log(err)
		}
	})
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Accel-Buffering") != "no" || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	return bufio.NewReader(resp.Body)
}

// event reads up to the next empty line.
func event(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var lines []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("stream ended after %q: %v", lines, err)
		}
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return strings.Join(lines, "|")
		}
		lines = append(lines, line)
	}
}

func TestStream(t *testing.T) {
	l := startLive(t)
	client := l.As(t, web.Viewer)
	r := l.open(t, client, "41")
	if got := event(t, r); got != "retry: 2000" {
		t.Errorf("first %q", got)
	}
	if got := event(t, r); got != "id: 42|data: first|data: line|data: 02:13:00 +01:00" {
		t.Errorf("fragment %q", got)
	}
	l.Advance(5 * time.Second)
	l.body.Store("second")
	l.Hub.Publish("other")
	l.Hub.Publish("items")
	l.Hub.Publish("items")
	if got := event(t, r); got != "id: 43|data: second|data: 02:13:05 +01:00" {
		t.Errorf("after a publication %q", got)
	}
	client.Post("/signout", nil)
	if got := event(t, r); got != "id: 44|event: signed-out|data: " {
		t.Errorf("after signing out %q", got)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the stream goes on after signing out")
	}
}

func TestStreamEndsWithTheServer(t *testing.T) {
	l := startLive(t)
	r := l.open(t, l.As(t, web.Viewer), "")
	event(t, r)
	event(t, r)
	start := time.Now()
	l.stop()
	select {
	case err := <-l.served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not stop")
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

func TestStreamWithoutASession(t *testing.T) {
	l := startLive(t)
	if got := l.Anonymous(t).Get("/stream"); got.Status != http.StatusUnauthorized {
		t.Errorf("%d", got.Status)
	}
}

func TestHubCoalesces(t *testing.T) {
	hub := web.NewHub()
	sub := hub.Subscribe("a", "b")
	for range 5 {
		hub.Publish("a")
		hub.Publish("b")
	}
	<-sub.C
	select {
	case <-sub.C:
		t.Error("publications do not coalesce")
	default:
	}
	sub.Close()
	sub.Close()
	hub.Publish("a")
	select {
	case <-sub.C:
		t.Error("a closed subscription is woken")
	default:
	}
}
