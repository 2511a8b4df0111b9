package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/migrations/pgserver"
	"sluis/web"
)

// operator is who acts on the command line: whoever may run the command on
// this machine.
var operator = web.User{Name: "command-line", Role: web.Admin}

// addUser creates a user with its audit record.
func addUser(ctx context.Context, a *app, name string, role web.Role, password string) (web.User, error) {
	return a.accounts().Create(ctx, operator, web.NewUser{
		Name: name, Display: strings.ToUpper(name[:1]) + name[1:], Role: role, Password: password,
	})
}

// database finds the database that a command works on: SLUIS_DATABASE_URL, or
// that of the running installation in the data directory.
func database(ctx context.Context, data string) (*pgxpool.Pool, error) {
	dsn := os.Getenv("SLUIS_DATABASE_URL")
	if dsn == "" {
		var running bool
		if dsn, running = pgserver.RunningDSN(data+"/postgres", databaseName); !running {
			return nil, fmt.Errorf("no sluis is running on %s: start it first, or set SLUIS_DATABASE_URL", data)
		}
	}
	return openPool(ctx, dsn)
}

// withApp runs f with an app that can change people and tokens, and nothing
// else: it has no target and takes no snapshots.
func withApp(ctx context.Context, data string, f func(*app) error) error {
	pool, err := database(ctx, data)
	if err != nil {
		return err
	}
	defer pool.Close()
	clock, err := gate.NewSystemClock(ctx, gate.PoolTime{Pool: pool})
	if err != nil {
		return err
	}
	g, err := gate.New(gate.Config{Pool: pool, Clock: clock})
	if err != nil {
		return err
	}
	return f(&app{parts: parts{pool: pool, clock: clock, log: slog.New(slog.DiscardHandler)}, gate: g})
}

// userCommands manage people.
type userCommands struct {
	Add      userAddCommand      `cmd:"" help:"Create a user; the password is read from SLUIS_PASSWORD, else made and printed once."`
	Password userPasswordCommand `cmd:"" help:"Set a user's password, as for add, and end the user's sessions."`
	List     userListCommand     `cmd:"" help:"List the users."`
}

type userAddCommand struct {
	Name string   `arg:"" help:"Name to sign in with."`
	Role web.Role `default:"viewer" enum:"viewer,oncall,planner,admin" help:"What the user may do."`
	Data string   `default:"./var" type:"path" help:"Data directory of the running installation."`
}

// Run creates the user.
func (c *userAddCommand) Run(ctx context.Context) error {
	return withApp(ctx, c.Data, func(a *app) error {
		return withPassword(func(password string) error {
			_, err := addUser(ctx, a, c.Name, c.Role, password)
			return err
		})
	})
}

type userPasswordCommand struct {
	Name string `arg:"" help:"The user's name."`
	Data string `default:"./var" type:"path" help:"Data directory of the running installation."`
}

// Run sets the password.
func (c *userPasswordCommand) Run(ctx context.Context) error {
	return withApp(ctx, c.Data, func(a *app) error {
		users, err := a.accounts().List(ctx)
		if err != nil {
			return err
		}
		for _, u := range users {
			if u.Name == web.NormalName(c.Name) {
				return withPassword(func(password string) error {
					_, err := a.accounts().SetPassword(ctx, operator, u.ID, password)
					return err
				})
			}
		}
		return fmt.Errorf("there is no user %q", c.Name)
	})
}

// withPassword gives f the password of SLUIS_PASSWORD, or a new one that is
// printed once f has kept it.
func withPassword(f func(string) error) error {
	if p := os.Getenv("SLUIS_PASSWORD"); p != "" {
		return f(p)
	}
	p, err := newPassword()
	if err != nil {
		return err
	}
	if err := f(p); err != nil {
		return err
	}
	fmt.Println("password:", p)
	return nil
}

type userListCommand struct {
	Data string `default:"./var" type:"path" help:"Data directory of the running installation."`
}

// Run lists the users.
func (c *userListCommand) Run(ctx context.Context) error {
	return withApp(ctx, c.Data, func(a *app) error {
		users, err := a.accounts().List(ctx)
		for _, u := range users {
			fmt.Printf("%-20s %-8s %s\n", u.Name, u.Role, u.Display)
		}
		return err
	})
}

// tokenCommands manage agents' tokens.
type tokenCommands struct {
	Create tokenCreateCommand `cmd:"" help:"Create a token for an agent and print it once."`
	Revoke tokenRevokeCommand `cmd:"" help:"Revoke all tokens of an agent."`
}

type tokenCreateCommand struct {
	Agent       string `arg:"" help:"Name of the agent, as the audit record will show it."`
	Integration string `default:"care" help:"The integration that the token is good for."`
	Data        string `default:"./var" type:"path" help:"Data directory of the running installation."`
}

// Run creates the token.
func (c *tokenCreateCommand) Run(ctx context.Context) error {
	return withApp(ctx, c.Data, func(a *app) error {
		token, err := a.gate.CreateToken(ctx, gate.Person(operator.Name), c.Integration, c.Agent)
		if err == nil {
			fmt.Println(token)
		}
		return err
	})
}

type tokenRevokeCommand struct {
	Agent       string `arg:"" help:"Name of the agent."`
	Integration string `default:"care" help:"The integration that its tokens are good for."`
	Data        string `default:"./var" type:"path" help:"Data directory of the running installation."`
}

// Run revokes the tokens.
func (c *tokenRevokeCommand) Run(ctx context.Context) error {
	return withApp(ctx, c.Data, func(a *app) error {
		n, err := a.gate.RevokeTokens(ctx, gate.Person(operator.Name), c.Integration, c.Agent)
		if err == nil {
			fmt.Printf("%d tokens revoked\n", n)
		}
		return err
	})
}
