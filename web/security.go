package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"

	"github.com/labstack/echo/v4"
)

// contentPolicy admits the console's own files and nothing inline.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func (s *Server) secureHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
		if s.config.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
		}
		return next(c)
	}
}

// admit is the one place where it is decided whether a request may reach its
// handler: origin, then sign-in, then role.
func (s *Server) admit(route Route) echo.HandlerFunc {
	return func(ec echo.Context) error {
		c := s.context(ec)
		if c.loadErr != nil && !route.Public {
			return &Error{Status: http.StatusServiceUnavailable, MessageID: "error.unavailable", Err: c.loadErr}
		}
		if err := s.cross.Check(c.Request()); err != nil {
			return s.refuse(c, route, RefusedCrossOrigin, http.StatusForbidden, err)
		}
		if route.Public {
			return route.Handler(c)
		}
		if c.User.ID == 0 {
			if navigates(c, route) {
				return c.Redirect("/signin?next=" + url.QueryEscape(c.Request().URL.RequestURI()))
			}
			return s.refuse(c, route, RefusedSignedOut, http.StatusUnauthorized, errors.New("not signed in"))
		}
		if !slices.Contains(route.Allow, c.User.Role) {
			return s.refuse(c, route, RefusedRole, http.StatusForbidden, fmt.Errorf("role %s", c.User.Role))
		}
		return route.Handler(c)
	}
}

// navigates reports whether a person opens a page, so that signing in can lead
// back to it.
func navigates(c *Context, route Route) bool {
	return route.Method == http.MethodGet && !route.Stream && !c.IsHTMX()
}

// refuse reports a refused action (reading changes nothing and is not
// reported) and returns its error.
func (s *Server) refuse(c *Context, route Route, reason string, status int, cause error) error {
	if route.Method != http.MethodGet {
		s.config.Refused(c.Ctx(), Refusal{
			At: c.Now, User: c.User, Route: route.Name, Method: route.Method, Path: c.Request().URL.Path,
			Reason: reason, RequestID: c.RequestID, Address: c.RealIP(),
		})
	}
	id := statusMessages[status]
	if reason == RefusedCrossOrigin {
		id = "error.cross_origin"
	}
	return &Error{Status: status, MessageID: id, Err: fmt.Errorf("refused: %s: %w", reason, cause)}
}

func isTooLarge(err error) bool {
	var e *http.MaxBytesError
	return errors.As(err, &e)
}

func stack() []byte { return debug.Stack() }
