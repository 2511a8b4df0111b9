package web

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/labstack/echo/v4"

	"sluis/static"
)

// Limits of both servers. Event streams lift the two deadlines for themselves.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	headerLimit   = 32 << 10
	stopGrace     = 4 * time.Second // Serve returns within five seconds
)

// Server is one of the two HTTP servers; see NewOperators and NewAgents.
type Server struct {
	config  Config
	echo    *echo.Echo
	cookie  string
	cross   *http.CrossOriginProtection
	closing chan struct{} // closed when the server begins to stop
}

// NewOperators builds the console's server. It returns every fault of the
// configuration and of the route table at once.
func NewOperators(config Config, routes []Route) (*Server, error) {
	if err := errors.Join(config.checkOperators(), checkRoutes(routes)); err != nil {
		return nil, fmt.Errorf("operators' server: %w", err)
	}
	s := newServer(config)
	s.cookie = cookieName(config.Secure)
	s.echo.HTTPErrorHandler = s.fail
	s.echo.Use(s.secureHeaders)
	s.probes()
	s.echo.GET(static.Prefix+"*", echo.WrapHandler(static.Handler()))
	s.echo.HEAD(static.Prefix+"*", echo.WrapHandler(static.Handler()))
	for _, r := range routes {
		s.echo.Add(r.Method, r.Path, s.admit(r)).Name = r.Name
	}
	return s, nil
}

func newServer(config Config) *Server {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = addressOf(config.Secure)
	e.Use(withRequestID)
	s := &Server{config: config, echo: e, cross: http.NewCrossOriginProtection(), closing: make(chan struct{})}
	e.Use(s.recovered)
	return s
}

// addressOf says where a request comes from: the connection's other end, or
// with a proxy in front what a proxy on a private address has seen. A header
// that the client sends itself never counts, else the limit on sign-in would
// count nothing.
func addressOf(proxied bool) echo.IPExtractor {
	if proxied {
		return echo.ExtractIPFromXFFHeader()
	}
	return echo.ExtractIPDirect()
}

// cookieName follows RFC 6265bis, section 4.1.3: the prefix makes browsers
// refuse the cookie from any other host or over plain http. Loopback without
// https cannot use it.
func cookieName(secure bool) string {
	if secure {
		return "__Host-sluis"
	}
	return "sluis"
}

// ServeHTTP answers one request; tests call it without a listener.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.echo.ServeHTTP(w, r) }

// Serve answers requests on ln until ctx ends, then stops: event streams end
// at once, other requests get four seconds. It returns nil after a clean stop.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerLimit,
	}
	server.RegisterOnShutdown(func() { close(s.closing) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	err := server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		s.config.Log.WarnContext(grace, "requests cut off at stop", "address", ln.Addr().String())
		err = server.Close()
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", ln.Addr(), err)
	}
	return nil
}

// probes serves /healthz (the process answers) and /readyz (it can serve).
func (s *Server) probes() {
	s.echo.GET("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	s.echo.GET("/readyz", func(c echo.Context) error {
		if s.config.Ready == nil {
			return c.String(http.StatusOK, "ready\n")
		}
		if err := s.config.Ready(c.Request().Context()); err != nil {
			s.config.Log.WarnContext(c.Request().Context(), "not ready", "error", err)
			c.Response().Header().Set("Retry-After", "1")
			return c.String(http.StatusServiceUnavailable, "not ready\n")
		}
		return c.String(http.StatusOK, "ready\n")
	})
}

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// withRequestID takes the id that a proxy has set, else makes one, and sends
// it back.
func withRequestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !requestIDForm.MatchString(id) {
			var b [8]byte
			if _, err := rand.Read(b[:]); err != nil {
				return fmt.Errorf("request id: %w", err)
			}
			id = hex.EncodeToString(b[:])
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

func requestID(c echo.Context) string { return c.Response().Header().Get(echo.HeaderXRequestID) }

// recovered turns a panic into an error, so that it gets its page and its line
// in the log. http.ErrAbortHandler goes on.
func (s *Server) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			r := recover()
			if r == nil {
				return
			}
			if r == http.ErrAbortHandler {
				panic(r)
			}
			err = fmt.Errorf("panic: %v\n%s", r, stack())
		}()
		return next(c)
	}
}
