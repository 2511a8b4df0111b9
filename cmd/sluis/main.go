// Command sluis is the operator console and the inline gate between agents and
// the record systems they write to. Run it without arguments for its commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"sluis/snapshots/s3server"
)

// commands is the command line.
type commands struct {
	Demo    demoCommand    `cmd:"" help:"Start everything on loopback with the recorded care incident in it: database, object store, record system, console and agents' API."`
	Serve   serveCommand   `cmd:"" help:"Start the console, the agents' API and the workers for real integrations."`
	Replay  replayCommand  `cmd:"" help:"Play a recorded trace through the real gate at its recorded clock, and report what happened."`
	Verify  verifyCommand  `cmd:"" help:"Verify a chain of snapshots offline, with the public key alone."`
	Migrate migrateCommand `cmd:"" help:"Bring the database to this version's schema."`
	User    userCommands   `cmd:"" help:"Manage the people who can sign in."`
	Token   tokenCommands  `cmd:"" help:"Manage the tokens of agents."`
}

// exitCode ends the process with a code after everything has been closed.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	s3server.ChildMain()
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var cli commands
	parser := kong.Parse(&cli, kong.Name("sluis"), kong.UsageOnError(),
		kong.Description("One gate between AI agents and record systems, and the console that undoes a bad night."),
		kong.BindTo(ctx, (*context.Context)(nil)))
	err := parser.Run()
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	default:
		fmt.Fprintln(os.Stderr, "sluis: "+err.Error())
		return 1
	}
}
