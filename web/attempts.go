package web

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Attempts limits how often sign-in may be tried: ten times for one name and
// thirty for one address, then one more per minute for the name and one per
// ten seconds for the address. Both count, so that neither many names from one
// place nor one name from many places gets further. It lives in memory: each
// process counts for itself.
type Attempts struct {
	mu   sync.Mutex
	kept map[string]*attempt
}

type attempt struct {
	limiter *rate.Limiter
	last    time.Time
}

const (
	nameBurst, nameEvery       = 10, time.Minute
	addressBurst, addressEvery = 30, 10 * time.Second
	attemptsKept               = 10_000
	attemptsIdle               = 15 * time.Minute // both buckets are full again by then
)

// NewAttempts returns a limiter that has seen nothing.
func NewAttempts() *Attempts { return &Attempts{kept: map[string]*attempt{}} }

// Allow takes one attempt at the instant now and reports whether it may be
// made.
func (a *Attempts) Allow(now time.Time, name, address string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(now)
	byName := a.take(now, "name "+NormalName(name), nameEvery, nameBurst)
	byAddress := a.take(now, "address "+address, addressEvery, addressBurst)
	return byName && byAddress
}

func (a *Attempts) take(now time.Time, key string, every time.Duration, burst int) bool {
	k, ok := a.kept[key]
	if !ok {
		k = &attempt{limiter: rate.NewLimiter(rate.Every(every), burst)}
		a.kept[key] = k
	}
	k.last = now
	return k.limiter.AllowN(now, 1)
}

// forget drops what has been idle, once there is much to drop.
func (a *Attempts) forget(now time.Time) {
	if len(a.kept) < attemptsKept {
		return
	}
	for key, k := range a.kept {
		if now.Sub(k.last) > attemptsIdle {
			delete(a.kept, key)
		}
	}
}
