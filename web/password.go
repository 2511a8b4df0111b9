package web

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
)

// Length limits of a password (NIST SP 800-63B: at least eight for a chosen
// one, long ones allowed; we ask for twelve because there is no second factor).
const (
	PasswordMin = 12
	PasswordMax = 256
)

// ErrPassword is returned for a password outside the length limits.
var ErrPassword = errors.New("password length out of range")

// hashParams follow OWASP's first choice for argon2id: 19 MiB, two passes.
var hashParams = &argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// hashSlots bounds how many hashes are computed at once, so that a flood of
// sign-ins costs bounded memory.
var hashSlots = make(chan struct{}, 4)

func withHashSlot(ctx context.Context, f func() error) error {
	select {
	case hashSlots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-hashSlots }()
	return f()
}

// hashPassword checks the length and returns the argon2id hash.
func hashPassword(ctx context.Context, password string) (string, error) {
	if n := utf8.RuneCountInString(password); n < PasswordMin || len(password) > PasswordMax {
		return "", ErrPassword
	}
	var hash string
	err := withHashSlot(ctx, func() error {
		var err error
		hash, err = argon2id.CreateHash(password, hashParams)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return hash, nil
}

// decoyHash is compared against when the name is unknown, so that the answer
// takes as long as for a known one.
var decoyHash = sync.OnceValues(func() (string, error) {
	return argon2id.CreateHash("no such user", hashParams)
})

// matchPassword compares in constant time. An empty hash never matches and
// takes as long.
func matchPassword(ctx context.Context, password, hash string) (bool, error) {
	known := hash != ""
	if !known {
		var err error
		if hash, err = decoyHash(); err != nil {
			return false, fmt.Errorf("decoy hash: %w", err)
		}
	}
	if len(password) > PasswordMax {
		password, known = "", false
	}
	var match bool
	err := withHashSlot(ctx, func() error {
		var err error
		match, err = argon2id.ComparePasswordAndHash(password, hash)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("compare password: %w", err)
	}
	return match && known, nil
}
