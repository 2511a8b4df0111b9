package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/gate/source"
	"sluis/handlers"
	"sluis/snapshots"
	"sluis/snapshots/objectstore"
	"sluis/views"
	"sluis/web"
)

// care is the integration of this release.
const care = "care"

// timing is what an operator may tune, and tests shorten.
type timing struct {
	StaleAfter     time.Duration `default:"2m" help:"Look up a mutation that has been in flight for longer." hidden:""`
	SendTimeout    time.Duration `default:"15s" help:"Give a record system this long to answer." hidden:""`
	ReconcileEvery time.Duration `default:"1m" help:"Period of reconciliation." hidden:""`
}

// parts are the stores and ports that an app is built from.
type parts struct {
	pool    *pgxpool.Pool
	store   snapshots.Store
	keys    snapshots.Keys
	clock   gate.Clock
	targets map[string]gate.Target
	log     *slog.Logger
	timing  timing
}

var _ snapshots.Store = (*objectstore.Store)(nil)

// app is the gate and the snapshots over one set of parts.
type app struct {
	parts
	gate      *gate.Gate
	snapshots *snapshots.Service
}

func newApp(p parts) (*app, error) {
	sources := map[string]gate.Source{}
	subjects := map[string]string{}
	for id := range p.targets {
		sources[id], subjects[id] = source.Care(), "client"
	}
	g, err := gate.New(gate.Config{
		Pool: p.pool, Clock: p.clock, Targets: p.targets, Sources: sources, SubjectFields: subjects, Logger: p.log,
		StaleAfter: p.timing.StaleAfter, SendTimeout: p.timing.SendTimeout, ReconcileEvery: p.timing.ReconcileEvery,
	})
	if err != nil {
		return nil, err
	}
	s, err := snapshots.New(snapshots.Config{
		Pool: p.pool, Gate: g, Store: p.store, Keys: p.keys, Clock: p.clock, RealNow: time.Now, Logger: p.log,
	})
	if err != nil {
		return nil, err
	}
	return &app{parts: p, gate: g, snapshots: s}, nil
}

// rescueAfter is when River takes a job for lost whose worker died.
const rescueAfter = 2 * time.Minute

// jobs builds the client that works all jobs of the app, and hands it to the
// packages that insert them.
func (a *app) jobs() (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	a.gate.Workers(workers)
	a.snapshots.Workers(workers)
	river.AddWorker(workers, &purgeWorker{sessions: a.sessions(), log: a.log})
	periodic := append(a.gate.PeriodicJobs(), a.snapshots.PeriodicJobs()...)
	client, err := river.NewClient(riverpgxv5.New(a.pool), &river.Config{
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 8}},
		Workers:              workers,
		PeriodicJobs:         append(periodic, purgePeriod()),
		RescueStuckJobsAfter: rescueAfter,
		JobTimeout:           -1, // a rollback takes as long as it takes; each step has its own bound
		Logger:               a.log,
	})
	if err != nil {
		return nil, fmt.Errorf("job client: %w", err)
	}
	a.gate.SetJobs(client)
	a.snapshots.SetJobs(client)
	return client, nil
}

// listeners are the two addresses, taken before anything slow is started.
type listeners struct{ console, agents net.Listener }

func listen(console, agents string) (listeners, error) {
	c, err := listenOn(console, "--console")
	if err != nil {
		return listeners{}, err
	}
	a, err := listenOn(agents, "--agents")
	if err != nil {
		return listeners{}, errors.Join(err, c.Close())
	}
	return listeners{c, a}, nil
}

func listenOn(addr, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another program: stop it, or choose another address with %s", addr, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

func (l listeners) consoleURL() string { return "http://" + l.console.Addr().String() }
func (l listeners) agentsURL() string  { return "http://" + l.agents.Addr().String() }

// run serves until ctx ends, and then stops everything that it started.
func (a *app) run(ctx context.Context, l listeners, ready func()) error {
	client, err := a.jobs()
	if err != nil {
		return err
	}
	hub := web.NewHub()
	operators, agents, err := a.servers(hub)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return fmt.Errorf("start the jobs: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return operators.Serve(ctx, l.console) })
	group.Go(func() error { return agents.Serve(ctx, l.agents) })
	group.Go(func() error { return a.gate.RunNotifier(ctx) })
	group.Go(func() error { return a.gate.RunLinker(ctx) })
	group.Go(func() error {
		return a.gate.Listen(ctx, func(integration, topic string) { publish(hub, integration, topic) })
	})
	group.Go(func() error {
		<-ctx.Done()
		return stopJobs(context.WithoutCancel(ctx), client)
	})
	ready()
	return group.Wait()
}

// stopJobs ends the jobs: briefly by themselves, then by cancelling them. What
// they had under way is taken up again at the next start.
func stopJobs(ctx context.Context, client *river.Client[pgx.Tx]) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	if err := client.StopAndCancel(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop the jobs: %w", err)
	}
	return nil
}

// everyTopic is what Listen reports after it was away: anything may have changed.
const everyTopic = "*"

func publish(hub *web.Hub, integration, topic string) {
	if topic == everyTopic {
		hub.PublishAll()
		return
	}
	hub.Publish(handlers.Topic(integration, topic))
}

// servers builds the console's and the agents' server.
func (a *app) servers(hub *web.Hub) (operators, agents *web.Server, err error) {
	accounts := a.accounts()
	config := web.Config{
		Log: a.log, Now: a.clock.Now, Ready: a.pool.Ping, Hub: hub,
		Sessions: a.sessions(),
		Integrations: func(ctx context.Context) ([]string, error) {
			list, err := a.gate.Integrations(ctx)
			ids := make([]string, len(list))
			for i := range list {
				ids[i] = list[i].ID
			}
			return ids, err
		},
		Chrome:   a.chrome,
		Refused:  a.recordRefusal,
		Classify: handlers.Classify,
		Principal: func(ctx context.Context, token string) (web.Principal, error) {
			agent, integration, err := a.gate.ResolveToken(ctx, token)
			if errors.Is(err, gate.ErrNotFound) {
				err = web.ErrUnknownToken
			}
			return web.Principal{Agent: agent, Integration: integration}, err
		},
	}
	if operators, err = web.NewOperators(config, a.routes(accounts)); err != nil {
		return nil, nil, err
	}
	agents, err = web.NewAgents(config, handlers.Agents(a.gate))
	return operators, agents, err
}

// routes is the console's whole route table.
func (a *app) routes(accounts *web.Accounts) []web.Route {
	routes := handlers.SignIn{Accounts: accounts, Attempts: web.NewAttempts()}.Routes()
	routes = append(routes, handlers.Profile{Accounts: accounts}.Routes()...)
	routes = append(routes, handlers.Users{Accounts: accounts}.Routes()...)
	routes = append(routes, handlers.Desk(handlers.DeskDeps{
		Gate: a.gate, Snapshot: a.snapshots, Audit: audit.Reader{Q: a.pool}, Log: a.log,
	})...)
	return append(routes, handlers.Recovery(handlers.RecoveryDeps{Gate: a.gate, Snapshots: a.snapshots, Log: a.log})...)
}

// sessions keeps who is signed in.
func (a *app) sessions() *web.Sessions { return web.NewSessions(a.pool, a.clock.Now, false) }

// accounts changes users with their audit records.
func (a *app) accounts() *web.Accounts {
	return web.NewAccounts(a.pool, a.clock.Now, func(ctx context.Context, tx pgx.Tx, e web.AccountEntry) error {
		detail := map[string]any{}
		for name, v := range e.Detail {
			detail[name] = v
		}
		actor := e.Actor.Name
		if actor == "" {
			actor = "anonymous"
		}
		return audit.Append(ctx, tx, audit.Entry{
			At: e.At, ActorKind: string(gate.KindPerson), Actor: actor, Action: e.Action, Object: e.Object, Detail: detail,
		})
	})
}

// recordRefusal writes the audit record of an action that was refused.
func (a *app) recordRefusal(ctx context.Context, r web.Refusal) {
	actor := r.User.Name
	if actor == "" {
		actor = "anonymous"
	}
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		return audit.Append(ctx, tx, audit.Entry{
			At: r.At, ActorKind: string(gate.KindPerson), Actor: actor, Action: "access.refused", Object: r.Route,
			Detail: map[string]any{"method": r.Method, "path": r.Path, "reason": r.Reason, "request": r.RequestID, "address": r.Address},
		})
	})
	if err != nil {
		a.log.Error("a refusal could not be recorded", "route", r.Route, "err", err)
	}
}

// chrome is what surrounds every page: counts beside the navigation, and the
// banner of a rollback.
func (a *app) chrome(ctx context.Context, _ web.User, integration string) (views.Chrome, error) {
	return handlers.Chrome(ctx, a.gate, a.snapshots, integration)
}
