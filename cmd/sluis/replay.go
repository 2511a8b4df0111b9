package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"sluis/gate"
	"sluis/gate/sandbox/trace"
)

// replayCommand plays a trace in a world of its own.
type replayCommand struct {
	File        string    `arg:"" type:"existingfile" help:"Trace: JSON lines, zstd-compressed."`
	Integration string    `default:"care" help:"Integration to play it through."`
	Mode        gate.Mode `default:"enforce" enum:"off,shadow,enforce" help:"Mode of the gate."`
	Data        string    `type:"path" help:"Keep the played world, with its snapshots, in this empty directory: open it with 'sluis demo --data DIR'. Without it the world is thrown away."`
	JSON        bool      `name:"json" help:"Print the outcome as JSON."`
}

// replayOutcome is what a replay prints.
type replayOutcome struct {
	Trace      string         `json:"trace"`
	Mode       gate.Mode      `json:"mode"`
	Deliveries map[string]int `json:"deliveries"`
	Mutations  map[string]int `json:"mutations"`
	Sends      int            `json:"sends"`
	Board      string         `json:"board,omitempty"`
	Visits     int            `json:"visits"`
	MostBefore int            `json:"most_clients_before_noon"`
	Nurse      string         `json:"nurse,omitempty"`
	Pairs      int            `json:"hash_pairs"`
	Snapshots  int            `json:"snapshots"`
	Unmet      []string       `json:"unmet,omitempty"`
}

// Run plays the trace and prints what came of it. It fails when a delivery in
// mode enforce is not judged as the trace expects.
func (c *replayCommand) Run(ctx context.Context) (err error) {
	tr, err := trace.Open(c.File)
	if err != nil {
		return err
	}
	path, keep := c.Data, c.Data != ""
	if !keep {
		if path, err = os.MkdirTemp("", "sluis-replay-"); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(path)) }()
		if err := os.Chmod(path, 0o755); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		path = filepath.Join(path, "world")
	}
	got, err := c.play(ctx, tr, path, keep)
	if err != nil {
		return err
	}
	out := c.outcome(tr, got)
	if err := out.print(os.Stdout, c.JSON); err != nil {
		return err
	}
	if len(out.Unmet) > 0 {
		return exitCode(2)
	}
	return nil
}

func (c *replayCommand) play(ctx context.Context, tr *trace.Trace, path string, keep bool) (got played, err error) {
	say := newProgress(os.Stderr, c.JSON)
	dir, err := openDataDir(path, false)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	if found, err := dir.readJSON(demoFile, &demoState{}); err != nil || found {
		return got, errors.Join(err, fmt.Errorf("%s holds a world already: give another directory with --data", path))
	}
	var open stack
	defer func() { err = errors.Join(err, open.close(context.WithoutCancel(ctx))) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w, err := openWorld(ctx, dir, worldOptions{integration: c.Integration, durable: keep, snapshots: keep, log: log, say: say}, &open)
	if err != nil {
		return got, err
	}
	state := demoState{Mode: c.Mode}
	if keep {
		if state, err = newDemoState(ctx, w, c.Mode); err != nil {
			return got, err
		}
	}
	if got, err = w.play(ctx, tr, c.Mode, say); err != nil || !keep {
		return got, err
	}
	if err := state.addToken(ctx, w); err != nil {
		return got, err
	}
	return got, dir.writeJSON(demoFile, state)
}

func (c *replayCommand) outcome(tr *trace.Trace, got played) replayOutcome {
	out := replayOutcome{
		Trace: tr.Meta.Name, Mode: c.Mode, Deliveries: map[string]int{}, Mutations: got.Decisions, Sends: got.Sends,
		Board: tr.Meta.Board, Visits: got.Board.Visits, MostBefore: got.Board.MaxBeforeNoon, Nurse: got.Board.Nurse,
		Pairs: got.Scan, Snapshots: got.Taken,
	}
	for _, e := range got.Events {
		name := string(e.Receipt.Disposition)
		if e.Receipt.Reason != "" {
			name += "/" + string(e.Receipt.Reason)
		}
		out.Deliveries[name]++
	}
	if c.Mode != gate.ModeEnforce {
		return out
	}
	for _, e := range got.Unmet() {
		out.Unmet = append(out.Unmet, fmt.Sprintf("line %d: expected %s %s, got %s %s",
			e.Line, e.Expected.Disposition, e.Expected.Reason, e.Receipt.Disposition, e.Receipt.Reason))
	}
	return out
}

func (o replayOutcome) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(o)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s in mode %s\n", o.Trace, o.Mode)
	for _, part := range []struct {
		title  string
		counts map[string]int
	}{{"deliveries", o.Deliveries}, {"mutations", o.Mutations}} {
		for _, name := range sortedKeys(part.counts) {
			fmt.Fprintf(t, "  %s\t%s\t%d\n", part.title, name, part.counts[name])
		}
	}
	fmt.Fprintf(t, "  sent to the record system\t\t%d\n", o.Sends)
	if o.Board != "" {
		fmt.Fprintf(t, "  visits on %s\t\t%d\n", o.Board, o.Visits)
		fmt.Fprintf(t, "  most clients before noon\t%s\t%d\n", o.Nurse, o.MostBefore)
	}
	fmt.Fprintf(t, "  hash pairs found\t\t%d\n", o.Pairs)
	for _, u := range o.Unmet {
		fmt.Fprintf(t, "  not as expected\t%s\t\n", u)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the outcome: %w", err)
	}
	return nil
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
