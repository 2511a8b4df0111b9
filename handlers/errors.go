package handlers

import (
	"errors"
	"net/http"

	"sluis/gate"
	"sluis/web"
)

// Classify turns a domain error into its page; nil for an error that it does
// not know. It is for web.Config.Classify.
func Classify(err error) *web.Error {
	var decided *gate.DecidedError
	switch {
	case errors.As(err, &decided):
		return &web.Error{Status: http.StatusConflict, MessageID: "error.decided", Err: err,
			Args: []any{"What", decided.What, "By", decided.By}}
	case errors.Is(err, gate.ErrStale):
		return &web.Error{Status: http.StatusConflict, MessageID: "error.stale", Err: err}
	case errors.Is(err, gate.ErrNotFound):
		return web.NotFound(err)
	case errors.Is(err, gate.ErrUnavailable):
		return &web.Error{Status: http.StatusServiceUnavailable, MessageID: "error.unavailable", Err: err}
	case errors.Is(err, gate.ErrInFlight):
		return &web.Error{Status: http.StatusConflict, MessageID: "error.in_flight", Err: err}
	case errors.Is(err, gate.ErrMalformed):
		return &web.Error{Status: http.StatusUnprocessableEntity, MessageID: "error.malformed", Err: err}
	}
	return nil
}
