package main

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"sluis/gate"
	"sluis/gate/sandbox"
	"sluis/gate/target"
	"sluis/snapshots"
	"sluis/snapshots/objectstore"
)

// amsterdam is the zone of the care organisation in the recorded incident.
var amsterdam = mustZone("Europe/Amsterdam")

func mustZone(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic("the zone database is built in: " + err.Error())
	}
	return zone
}

// world is an app with the simulated care record system as its target.
type world struct {
	app         *app
	dir         *dataDir
	integration string
	system      *sandbox.System
	target      *target.HTTP
	recordsURL  string
	clock       *worldClock
}

// worldClock is the record system's clock: the recorded one while a trace is
// played, else the real one.
type worldClock struct {
	recorded atomic.Pointer[gate.ManualClock]
}

func (c *worldClock) now() time.Time {
	if r := c.recorded.Load(); r != nil {
		return r.Now()
	}
	return time.Now()
}

type worldOptions struct {
	integration string // whose target the record system is
	durable     bool   // fsync on: what a demo is for is kept
	snapshots   bool   // start the object store too
	timing      timing
	log         *slog.Logger
	say         *progress
}

// openWorld starts the private Postgres, the object store and the record
// system in the data directory, whatever the environment says of others.
func openWorld(ctx context.Context, dir *dataDir, o worldOptions, open *stack) (*world, error) {
	w := &world{dir: dir, clock: &worldClock{}, integration: o.integration}
	o.say.line("starting a private PostgreSQL in %s", dir.file("postgres"))
	pool, err := openDatabase(ctx, dir, "", o.durable, o.log, open)
	if err != nil {
		return nil, err
	}
	p := parts{pool: pool, log: o.log, timing: o.timing, store: noStore{}}
	if o.snapshots {
		o.say.line("starting the object store with Object Lock in %s", dir.file("objects"))
		if p.store, err = openObjects(ctx, dir, objectstore.Config{}, o.log, open); err != nil {
			return nil, err
		}
	}
	if p.keys, err = snapshots.LoadOrCreateKeys(dir.path); err != nil {
		return nil, err
	}
	o.say.line("starting the simulated care record system")
	if err := w.openRecords(dir, o.log, open); err != nil {
		return nil, err
	}
	p.targets = map[string]gate.Target{o.integration: w.target}
	if p.clock, err = gate.NewSystemClock(ctx, gate.PoolTime{Pool: pool}); err != nil {
		return nil, err
	}
	w.app, err = newApp(p)
	return w, err
}

// openRecords opens the record system and serves it on a loopback port.
func (w *world) openRecords(dir *dataDir, log *slog.Logger, open *stack) error {
	system, err := sandbox.Open(dir.file("records"), sandbox.Options{Clock: w.clock.now, Logger: log})
	if err != nil {
		return err
	}
	open.push(func(context.Context) error { return system.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("record system: %w", err)
	}
	server := &http.Server{Handler: system.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the record system stopped", "err", err)
		}
	}()
	open.push(func(context.Context) error { return server.Close() })
	w.system, w.recordsURL = system, "http://"+l.Addr().String()
	w.target, err = target.New(target.Config{BaseURL: w.recordsURL, Timeout: 2 * time.Minute})
	if err == nil {
		open.push(func(context.Context) error { w.target.Close(); return nil })
	}
	return err
}

// newPassword makes a password that a person can type: 80 bits.
func newPassword() (string, error) {
	var b [10]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a password: %w", err)
	}
	text := strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
	return text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:], nil
}
