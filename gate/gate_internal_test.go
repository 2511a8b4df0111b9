package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestStoreErrors(t *testing.T) {
	code := func(c string) error { return fmt.Errorf("read: %w", &pgconn.PgError{Code: c}) }
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"no code at all", code(""), false},
		{"half a class", code("5"), false},
		{"connection failure", code("08006"), true},
		{"too many connections", code("53300"), true},
		{"disk full", code("53100"), true},
		{"shutting down", code("57P01"), true},
		{"statement cancelled", code("57014"), false},
		{"disk error", code("58030"), true},
		{"deadlock: nothing was stored, try again", code("40P01"), true},
		{"serialisation: nothing was stored, try again", code("40001"), true},
		{"unique violation", code("23505"), false},
		{"text that cannot be stored", code("22021"), false},
		{"the connection ended", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		{"the caller's time is over", fmt.Errorf("acquire: %w", context.DeadlineExceeded), true},
		{"the caller went away", fmt.Errorf("acquire: %w", context.Canceled), false},
		{"our own", ErrMalformed, false},
	}
	for _, tt := range tests {
		if got := errors.Is(storeError(tt.err), ErrUnavailable); got != tt.want {
			t.Errorf("%s: unavailable %v, want %v", tt.name, got, tt.want)
		}
	}
	if storeError(nil) != nil {
		t.Error("no error became one")
	}
}
