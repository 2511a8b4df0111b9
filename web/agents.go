package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	defaultBodyLimit = 1 << 20
	unavailableRetry = 2 * time.Second
	agentKey         = "sluis.agent"
)

// AgentContext is what a handler of the agents' API gets.
type AgentContext struct {
	echo.Context
	Principal Principal // zero on a public route
	Now       time.Time
	RequestID string

	limit int64
}

// NewAgents builds the server for agents and providers. It returns every fault
// of the configuration and of the route table at once.
func NewAgents(config Config, routes []AgentRoute) (*Server, error) {
	if err := errors.Join(config.checkAgents(), checkAgentRoutes(routes)); err != nil {
		return nil, fmt.Errorf("agents' server: %w", err)
	}
	if config.BodyLimit == 0 {
		config.BodyLimit = defaultBodyLimit
	}
	s := newServer(config)
	s.echo.HTTPErrorHandler = s.failAgent
	s.echo.Use(agentHeaders)
	s.probes()
	for _, r := range routes {
		s.echo.Add(r.Method, r.Path, s.admitAgent(r)).Name = r.Name
	}
	return s, nil
}

func agentHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		return next(c)
	}
}

// admitAgent is the one place where an agent's request is authenticated and
// held to the integration of its token. Cookies are never looked at.
func (s *Server) admitAgent(route AgentRoute) echo.HandlerFunc {
	return func(ec echo.Context) error {
		c := s.agentContext(ec)
		if route.Public {
			return route.Handler(c)
		}
		token, ok := bearer(c.Request().Header.Get("Authorization"))
		if !ok {
			return unauthorized(c, "A bearer token is required.", nil)
		}
		p, err := s.config.Principal(c.Ctx(), token)
		if errors.Is(err, ErrUnknownToken) {
			return unauthorized(c, "The token is not valid.", err)
		}
		if err != nil {
			return &Problem{Status: http.StatusServiceUnavailable, Detail: "The token cannot be checked now.",
				RetryAfter: unavailableRetry, Err: err}
		}
		if want := c.Param("integration"); p.Integration != "" && want != "" && want != p.Integration {
			return &Problem{Status: http.StatusForbidden, Detail: "The token belongs to another integration.",
				Err: fmt.Errorf("agent %s of %s asked for %s", p.Agent, p.Integration, want)}
		}
		c.Principal = p
		return route.Handler(c)
	}
}

func unauthorized(c *AgentContext, detail string, cause error) error {
	c.Response().Header().Set("WWW-Authenticate", `Bearer realm="sluis"`)
	return &Problem{Status: http.StatusUnauthorized, Detail: detail, Err: cause}
}

func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

func (s *Server) agentContext(ec echo.Context) *AgentContext {
	if c, ok := ec.Get(agentKey).(*AgentContext); ok {
		return c
	}
	c := &AgentContext{Context: ec, Now: s.config.Now(), RequestID: requestID(ec), limit: s.config.BodyLimit}
	ec.Set(agentKey, c)
	return c
}

// Ctx returns the request's context.
func (c *AgentContext) Ctx() context.Context { return c.Request().Context() }

// Body reads the whole request body up to the limit; a longer one is a 413.
func (c *AgentContext) Body() ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, c.limit))
	if isTooLarge(err) {
		return nil, &Problem{Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("The body is larger than %d bytes.", c.limit), Err: err}
	}
	if err != nil {
		return nil, &Problem{Status: http.StatusBadRequest, Detail: "The body could not be read.", Err: err}
	}
	return body, nil
}

// problem turns any error into its document.
func (s *Server) problem(err error) *Problem {
	var own *Problem
	if errors.As(err, &own) {
		return own
	}
	if s.config.Problem != nil {
		if p := s.config.Problem(err); p != nil {
			return p
		}
	}
	var he *echo.HTTPError
	if errors.As(err, &he) {
		return &Problem{Status: he.Code, Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Problem{Status: http.StatusServiceUnavailable, RetryAfter: unavailableRetry, Err: err}
	}
	return &Problem{Status: http.StatusInternalServerError, Err: err}
}

// failAgent answers a request whose handler returned an error.
func (s *Server) failAgent(err error, ec echo.Context) {
	c := s.agentContext(ec)
	p := s.problem(err)
	level := slog.LevelInfo
	if p.Status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	s.config.Log.LogAttrs(c.Ctx(), level, "request failed",
		slog.String("request_id", c.RequestID), slog.String("method", c.Request().Method),
		slog.String("path", c.Request().URL.Path), slog.String("agent", c.Principal.Agent),
		slog.Int("status", p.Status), slog.Any("error", p))
	if c.Response().Committed {
		return
	}
	body, err := p.document("urn:sluis:request:" + c.RequestID)
	if err != nil {
		s.config.Log.ErrorContext(c.Ctx(), "problem document failed", "request_id", c.RequestID, "error", err)
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500}`)
		p = &Problem{Status: http.StatusInternalServerError}
	}
	if p.RetryAfter > 0 {
		c.Response().Header().Set("Retry-After", retryAfter(p.RetryAfter))
	}
	if err := c.Blob(p.Status, ProblemType, body); err != nil {
		s.config.Log.WarnContext(c.Ctx(), "answer failed", "request_id", c.RequestID, "error", err)
	}
}
