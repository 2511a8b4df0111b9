package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"sluis/gate"
	"sluis/gate/sandbox/trace"
	"sluis/snapshots"
	"sluis/web"
)

// demoCommand starts the whole product on loopback with the incident in it.
type demoCommand struct {
	Data    string    `default:"./var" help:"Directory for all data." type:"path"`
	Console string    `default:"127.0.0.1:8080" help:"Address of the console; port 0 takes a free one."`
	Agents  string    `default:"127.0.0.1:8081" help:"Address of the agents' API; port 0 takes a free one."`
	Mode    gate.Mode `default:"off" enum:"off,shadow,enforce" help:"Mode in which a fresh demo plays the incident: off shows the damage, enforce shows that it cannot happen."`
	Fresh   bool      `help:"Forget all data in the directory and start over."`
	JSON    bool      `name:"json" help:"Print one line of JSON when ready, and nothing else."`
	timing  `embed:""`
}

// demoFile keeps what the demo prints, so that a second start can print it
// again. It is written last: where it is missing, the demo was not finished.
const demoFile = "demo.json"

// addressFile says where a running demo listens, for scripts and tests.
const addressFile = "addresses.json"

// addresses is the content of addressFile.
type addresses struct {
	Console string `json:"console"`
	Agents  string `json:"agents"`
	Records string `json:"records"`
}

// demoState is the content of demoFile.
type demoState struct {
	Users    []demoUser        `json:"users"`
	Password string            `json:"password"`
	Tokens   map[string]string `json:"tokens"`
	Mode     gate.Mode         `json:"mode"`
}

// integration is the one that the world is about: care, or what a replay that
// was kept said.
func (s demoState) integration() string {
	for id := range s.Tokens {
		return id
	}
	return care
}

// demoUser is one fictional person of the demo.
type demoUser struct {
	Name string   `json:"name"`
	Role web.Role `json:"role"`
}

// Run starts the demo and serves until it is interrupted.
func (c *demoCommand) Run(ctx context.Context) (err error) {
	say := newProgress(os.Stderr, c.JSON)
	listeners, err := listen(c.Console, c.Agents)
	if err != nil {
		return err
	}
	dir, err := openDataDir(c.Data, c.Fresh)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	var open stack
	defer func() { err = errors.Join(err, open.close(context.WithoutCancel(ctx))) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w, state, err := openDemo(ctx, dir, c.Mode, c.timing, log, say, &open)
	if err != nil {
		return err
	}
	if err := w.awake(ctx); err != nil {
		return err
	}
	ready := func() {
		at := addresses{listeners.consoleURL(), listeners.agentsURL(), w.recordsURL}
		if err := dir.writeJSON(addressFile, at); err != nil {
			log.Warn("other commands cannot find this demo", "err", err)
		}
		if c.JSON {
			printReadyJSON(os.Stdout, listeners, state)
			return
		}
		printReady(os.Stdout, listeners, state, w)
	}
	err = w.app.run(ctx, listeners, ready)
	say.line("stopping")
	return err
}

// openDemo opens the stores and the record system, and plays the incident
// where this is the first start.
func openDemo(ctx context.Context, dir *dataDir, mode gate.Mode, t timing, log *slog.Logger, say *progress, open *stack) (*world, demoState, error) {
	var state demoState
	finished, err := dir.readJSON(demoFile, &state)
	if err != nil {
		return nil, state, err
	}
	if !finished {
		if err := dir.empty(); err != nil {
			return nil, state, err
		}
	}
	w, err := openWorld(ctx, dir, worldOptions{
		integration: state.integration(), durable: true, snapshots: true, timing: t, log: log, say: say,
	}, open)
	if err != nil {
		return nil, state, err
	}
	if finished {
		return w, state, nil
	}
	if state, err = firstStart(ctx, w, mode, say); err != nil {
		return nil, state, err
	}
	return w, state, dir.writeJSON(demoFile, state)
}

// firstStart fills an empty demo: people, the incident, an agent's token.
func firstStart(ctx context.Context, w *world, mode gate.Mode, say *progress) (demoState, error) {
	say.line("creating people")
	state, err := newDemoState(ctx, w, mode)
	if err != nil {
		return state, err
	}
	if _, err := w.play(ctx, trace.CareIncident(), mode, say); err != nil {
		return state, err
	}
	say.line("verifying the chain of snapshots")
	if _, err := w.app.snapshots.VerifyChain(ctx, gate.Job("demo"), w.integration, nil); err != nil {
		return state, err
	}
	return state, state.addToken(ctx, w)
}

// awake does at the start what a service that was never stopped would have done
// by now: the hash-pair scan and a snapshot, in today's time.
func (w *world) awake(ctx context.Context) error {
	job := gate.Job("demo")
	if _, err := w.app.gate.ScanPairs(ctx, job, w.integration); err != nil {
		return err
	}
	_, err := w.app.snapshots.Take(ctx, job, w.integration)
	return err
}

// newDemoState creates the demo's people, all with one generated password.
func newDemoState(ctx context.Context, w *world, mode gate.Mode) (demoState, error) {
	state := demoState{Mode: mode, Tokens: map[string]string{}, Users: []demoUser{
		{"anna", web.Planner}, {"bram", web.Planner}, {"otto", web.OnCall}, {"vera", web.Viewer}, {"ada", web.Admin},
	}}
	var err error
	if state.Password, err = newPassword(); err != nil {
		return state, err
	}
	for _, u := range state.Users {
		if _, err := addUser(ctx, w.app, u.Name, u.Role, state.Password); err != nil {
			return state, err
		}
	}
	return state, nil
}

func (s demoState) addToken(ctx context.Context, w *world) (err error) {
	s.Tokens[w.integration], err = w.app.gate.CreateToken(ctx, gate.Job("demo"), w.integration, "planning-agent")
	return err
}

// printReadyJSON prints the line that a script waits for.
func printReadyJSON(out io.Writer, l listeners, s demoState) {
	line, err := json.Marshal(struct {
		Console  string            `json:"console"`
		Agents   string            `json:"agents"`
		User     string            `json:"user"`
		Password string            `json:"password"`
		Tokens   map[string]string `json:"tokens"`
	}{l.consoleURL(), l.agentsURL(), s.Users[0].Name, s.Password, s.Tokens})
	if err == nil {
		fmt.Fprintln(out, string(line))
	}
}

// printReady tells a newcomer where to go and what to look at first.
func printReady(out io.Writer, l listeners, s demoState, w *world) {
	fmt.Fprintf(out, `
Sluis is ready.

  Console   %s
  Sign in   %s (planner), password %s
            also bram (planner), otto (on-call), vera (viewer), ada (admin): the same password
  Agents    %s
  Token     %s
  Records   %s (the simulated care record system)
  Data      %s
`, l.consoleURL(), s.Users[0].Name, s.Password, l.agentsURL(), s.Tokens[w.integration], w.recordsURL, w.dir.path)
	if s.Mode == gate.ModeEnforce {
		fmt.Fprint(out, `
Look first at the dashboard: the repeat of 26 October is one dropped row, red
until you acknowledge it, and Wednesday's board holds 312 visits.

`)
		return
	}
	fmt.Fprint(out, `
Look first at the dashboard: it is Wednesday 29 October 2025, 06:40, and the
board holds 624 visits where 312 exist. "Hash pairs" is red: compare them, then
plan a rollback for these. Stop with Ctrl-C; start again to go on with this data.

`)
}

// progress prints what takes long.
type progress struct {
	out   io.Writer
	quiet bool
	start time.Time
	last  time.Time
}

func newProgress(out io.Writer, quiet bool) *progress {
	return &progress{out: out, quiet: quiet, start: time.Now()}
}

func (p *progress) line(format string, args ...any) {
	if !p.quiet {
		fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
	}
}

// step prints a count, at most twice a second and at the end.
func (p *progress) step(done, total int, at time.Time) {
	if now := time.Now(); done == total || now.Sub(p.last) > 500*time.Millisecond {
		p.last = now
		p.line("  %d of %d steps, recorded clock %s", done, total, at.In(amsterdam).Format("Mon 2 Jan 15:04 -07:00"))
	}
}

var _ snapshots.Gate = (*gate.Gate)(nil)
