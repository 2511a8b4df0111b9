package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate/audit"
)

// channel is the Postgres channel of live updates; its payload is the
// integration and the topic, with a space between.
const channel = "sluis"

// The periods of the loops below.
const (
	notifyEvery   = 250 * time.Millisecond // the least time between two notifications of one topic
	linkEvery     = time.Second
	retryFirst    = 100 * time.Millisecond // after a failure; doubled up to retryMost
	retryMost     = 5 * time.Second
	everyTopic    = "*"
	listenKeepUp  = 30 * time.Second // a silent connection is checked this often
	listenAnswers = 5 * time.Second  // and has to answer within it
)

// touched is one thing that a page may show.
type touched struct{ integration, topic string }

// notifier gathers what changed. What is touched between two notifications is
// told once.
type notifier struct {
	mu      sync.Mutex
	pending map[touched]struct{}
	wake    chan struct{}
}

func newNotifier() *notifier {
	return &notifier{pending: map[touched]struct{}{}, wake: make(chan struct{}, 1)}
}

// touch remembers that a topic changed. It never waits.
func (n *notifier) touch(integration, topic string) {
	n.mu.Lock()
	n.pending[touched{integration, topic}] = struct{}{}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take empties the notifier.
func (n *notifier) take() []touched {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]touched, 0, len(n.pending))
	for t := range n.pending {
		list = append(list, t)
	}
	clear(n.pending)
	return list
}

// Touch says that what a topic shows has changed: "signals", "items", "pairs",
// "in_flight", "snapshots" or "rollback:<id>". Listeners in all processes are
// told, at most once in 250 ms for each topic, while RunNotifier runs. It never
// waits, and is called after a commit.
func (g *Gate) Touch(integration, topic string) { g.notes.touch(integration, topic) }

// RunNotifier tells what was touched until ctx ends, and then returns nil.
// While the store is away the topics are kept and told later.
func (g *Gate) RunNotifier(ctx context.Context) error {
	wait := retryFirst
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.notes.wake:
		}
		list := g.notes.take()
		pause := notifyEvery
		if err := g.notify(ctx, list); err != nil {
			for _, t := range list {
				g.notes.touch(t.integration, t.topic)
			}
			if ctx.Err() == nil {
				g.log.Warn("live updates are late", "err", err)
			}
			pause = wait
			wait = min(2*wait, retryMost)
		} else {
			wait = retryFirst
		}
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

func (g *Gate) notify(ctx context.Context, list []touched) error {
	payloads := make([]string, 0, len(list))
	for _, t := range list {
		payloads = append(payloads, t.integration+" "+t.topic)
	}
	if _, err := g.pool.Exec(ctx, `select pg_notify($1, p) from unnest($2::text[]) p`, channel, payloads); err != nil {
		return fmt.Errorf("notify listeners: %w", err)
	}
	return nil
}

// Listen calls f with each topic that is touched in any process, on a
// connection of its own, until ctx ends; then it returns nil. A lost
// connection is made again; because topics may have been missed meanwhile, f
// is then called once with an empty integration and the topic "*".
func (g *Gate) Listen(ctx context.Context, f func(integration, topic string)) error {
	wait := retryFirst
	for first := true; ; first = false {
		heard, err := g.listenOnce(ctx, !first, f)
		if ctx.Err() != nil {
			return nil
		}
		if heard {
			wait = retryFirst
		}
		g.log.Warn("live updates are interrupted", "err", err, "retry_in", wait)
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, retryMost)
	}
}

// listenOnce listens until the connection fails; heard says that it had one.
func (g *Gate) listenOnce(ctx context.Context, again bool, f func(integration, topic string)) (heard bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, g.pool.Config().ConnConfig)
	if err != nil {
		return false, fmt.Errorf("connect to listen: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return false, fmt.Errorf("listen: %w", err)
	}
	if again {
		f("", everyTopic)
	}
	for {
		if err := waitForTopic(ctx, conn, f); err != nil {
			return true, err
		}
	}
}

// waitForTopic hands on one notification, or checks a connection that has been
// silent for a while: a peer that vanished sends nothing, for ever.
func waitForTopic(ctx context.Context, conn *pgx.Conn, f func(integration, topic string)) error {
	waitCtx, cancel := context.WithTimeout(ctx, listenKeepUp)
	n, err := conn.WaitForNotification(waitCtx)
	cancel()
	if err == nil {
		integration, topic, _ := strings.Cut(n.Payload, " ")
		f(integration, topic)
		return nil
	}
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("wait for a notification: %w", err)
	}
	pingCtx, cancel := context.WithTimeout(ctx, listenAnswers)
	defer cancel()
	if err := conn.Ping(pingCtx); err != nil {
		return fmt.Errorf("check the listening connection: %w", err)
	}
	return nil
}

// RunLinker chains new audit records each second until ctx ends, and then
// returns nil. Several processes may run it; one links at a time.
func (g *Gate) RunLinker(ctx context.Context) error {
	wait := linkEvery
	for {
		if _, err := audit.Link(ctx, g.pool); err == nil {
			wait = linkEvery
		} else if ctx.Err() == nil {
			wait = min(2*wait, retryMost)
			g.log.Warn("the audit chain is behind", "err", err, "retry_in", wait)
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// sleep waits for d, or reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
