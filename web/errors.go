package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"sluis/views"
	"sluis/views/i18n"
)

// Error is an error with its page: the status, the message that the person
// reads and its placeholders. Err is the cause; it is logged and never shown.
type Error struct {
	Status    int
	MessageID string
	Args      []any // names and values in turn
	Err       error
}

// Error returns the message id and the cause, for the log.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.MessageID
	}
	return e.MessageID + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NotFound is the error of a page about something that does not exist.
func NotFound(err error) *Error {
	return &Error{Status: http.StatusNotFound, MessageID: "error.not_found", Err: err}
}

// statusMessages is the table from a bare status to its message.
var statusMessages = map[int]string{
	http.StatusBadRequest:            "error.bad_request",
	http.StatusUnauthorized:          "error.signed_out",
	http.StatusForbidden:             "error.forbidden",
	http.StatusNotFound:              "error.not_found",
	http.StatusMethodNotAllowed:      "error.method",
	http.StatusRequestEntityTooLarge: "error.too_large",
	http.StatusTooManyRequests:       "error.too_many",
	http.StatusServiceUnavailable:    "error.unavailable",
	http.StatusGatewayTimeout:        "error.timeout",
}

// classify turns any error into one with a page.
func (s *Server) classify(err error) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	if s.config.Classify != nil {
		if e := s.config.Classify(err); e != nil {
			return e
		}
	}
	var tooLarge *http.MaxBytesError
	var he *echo.HTTPError
	status := http.StatusInternalServerError
	switch {
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case errors.As(err, &he):
		status = he.Code
	}
	id, ok := statusMessages[status]
	if !ok {
		id = "error.internal"
	}
	return &Error{Status: status, MessageID: id, Err: err}
}

// fail answers a request whose handler returned an error: the whole page, or a
// fragment for htmx.
func (s *Server) fail(err error, ec echo.Context) {
	c := s.context(ec)
	e := s.classify(err)
	s.logError(c, e)
	if ec.Response().Committed {
		return
	}
	page := views.ErrorPage{
		Status:    e.Status,
		Text:      i18n.T(c.Ctx(), e.MessageID, e.Args...),
		RequestID: c.RequestID,
		SignIn:    e.Status == http.StatusUnauthorized,
	}
	if c.IsHTMX() {
		if err := c.Render(e.Status, views.ErrorFragment(page)); err != nil {
			s.failPlainly(c, err)
		}
		return
	}
	page.Page = c.Page("error.title", "")
	if err := c.Render(e.Status, views.Error(page)); err != nil {
		s.failPlainly(c, err)
	}
}

// failPlainly is the answer when even the error page fails.
func (s *Server) failPlainly(c *Context, err error) {
	s.config.Log.ErrorContext(c.Ctx(), "error page failed", "request_id", c.RequestID, "error", err)
	if c.Response().Committed {
		return
	}
	if err := c.String(http.StatusInternalServerError, "Error "+c.RequestID+"\n"); err != nil {
		s.config.Log.ErrorContext(c.Ctx(), "answer failed", "request_id", c.RequestID, "error", err)
	}
}

func (s *Server) logError(c *Context, e *Error) {
	level := slog.LevelInfo
	if e.Status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	if errors.Is(e.Err, context.Canceled) {
		level = slog.LevelDebug
	}
	s.config.Log.LogAttrs(c.Ctx(), level, "request failed",
		slog.String("request_id", c.RequestID),
		slog.String("method", c.Request().Method),
		slog.String("path", c.Request().URL.Path),
		slog.String("user", c.User.Name),
		slog.Int("status", e.Status),
		slog.Any("error", e))
}
