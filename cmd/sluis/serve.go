package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"sluis/gate"
	"sluis/gate/target"
	"sluis/migrations"
	"sluis/snapshots"
)

// serveCommand runs Sluis for a real record system.
type serveCommand struct {
	Data    string `default:"./var" type:"path" help:"Directory for keys, and for the embedded stores where none are set."`
	Console string `default:"127.0.0.1:8080" help:"Address of the console."`
	Agents  string `default:"127.0.0.1:8081" help:"Address of the agents' API."`
	Target  string `env:"SLUIS_CARE_URL" help:"Address of the care record system (SLUIS_CARE_URL; its token in SLUIS_CARE_TOKEN)."`
	timing  `embed:""`
}

// Run serves until it is interrupted.
func (c *serveCommand) Run(ctx context.Context) (err error) {
	if c.Target == "" {
		return errors.New("SLUIS_CARE_URL is not set: say where the care record system is, or run 'sluis demo' for a simulated one")
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	listeners, err := listen(c.Console, c.Agents)
	if err != nil {
		return err
	}
	dir, err := openDataDir(c.Data, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	var open stack
	defer func() { err = errors.Join(err, open.close(context.WithoutCancel(ctx))) }()
	p := parts{log: log, timing: c.timing}
	if p.pool, err = openDatabase(ctx, dir, os.Getenv("SLUIS_DATABASE_URL"), true, log, &open); err != nil {
		return err
	}
	if p.store, err = openObjects(ctx, dir, bucketFromEnvironment(), log, &open); err != nil {
		return err
	}
	if p.keys, err = openKeys(dir); err != nil {
		return err
	}
	if p.clock, err = gate.NewSystemClock(ctx, gate.PoolTime{Pool: p.pool}); err != nil {
		return err
	}
	records, err := target.New(target.Config{BaseURL: c.Target, Token: os.Getenv("SLUIS_CARE_TOKEN"), Timeout: p.timing.SendTimeout})
	if err != nil {
		return err
	}
	defer records.Close()
	p.targets = map[string]gate.Target{care: records}
	a, err := newApp(p)
	if err != nil {
		return err
	}
	err = a.gate.EnsureIntegration(ctx, gate.Job("serve"), gate.Integration{
		ID: care, Name: "Care planning", Mode: gate.ModeShadow, MaxSkew: 5 * time.Minute,
	})
	if err != nil {
		return err
	}
	return a.run(ctx, listeners, func() {
		log.Info("ready", "console", listeners.consoleURL(), "agents", listeners.agentsURL())
	})
}

// openKeys takes the signing key from SLUIS_SNAPSHOT_KEY, else from the data
// directory.
func openKeys(dir *dataDir) (snapshots.Keys, error) {
	if private := os.Getenv("SLUIS_SNAPSHOT_KEY"); private != "" {
		return snapshots.ParseKeys(private)
	}
	return snapshots.LoadOrCreateKeys(dir.path)
}

// migrateCommand brings an external database up to date.
type migrateCommand struct{}

// Run migrates and says how much there was to do.
func (migrateCommand) Run(ctx context.Context) error {
	dsn := os.Getenv("SLUIS_DATABASE_URL")
	if dsn == "" {
		return errors.New("SLUIS_DATABASE_URL is not set: embedded databases are migrated when they start")
	}
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	pending, err := migrations.Pending(ctx, pool)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	version, err := migrations.Version(ctx, pool)
	if err != nil {
		return err
	}
	fmt.Printf("%d migrations applied: the database is at schema %d\n", pending, version)
	return nil
}
