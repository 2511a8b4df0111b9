package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/migrations/pgserver"
	"sluis/snapshots"
	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server"
)

// verifyCommand verifies chains without the service.
type verifyCommand struct {
	Data        string `default:"./var" type:"path" help:"Data directory of an installation with embedded stores, running or not."`
	Folder      string `type:"existingdir" help:"Verify a copy of the bucket in this folder instead; locks cannot be checked there."`
	Key         string `help:"Public key (the content of snapshot-key.pub) or a file with it; by default that of --data."`
	Integration string `help:"Verify one integration's chain; by default all."`
	Head        string `help:"The head that the chain must end with, as SEQ:HASH; by default the database's, where it can be asked."`
	JSON        bool   `name:"json" help:"Print reports as JSON."`
}

// verifyFailed is the exit code when anything is found wrong.
const verifyFailed = exitCode(3)

// Run verifies and prints one report for each chain.
func (c *verifyCommand) Run(ctx context.Context) (err error) {
	var open stack
	defer func() { err = errors.Join(err, open.close(context.WithoutCancel(ctx))) }()
	key, err := c.publicKey()
	if err != nil {
		return err
	}
	reader, heads, err := c.open(ctx, &open)
	if err != nil {
		return err
	}
	chains := []string{c.Integration}
	if c.Integration == "" {
		if chains, err = snapshots.ChainsIn(ctx, reader); err != nil {
			return err
		}
	}
	for id := range heads {
		if c.Integration == "" && !slices.Contains(chains, id) {
			chains = append(chains, id) // the database knows a chain that the store has lost
		}
	}
	good := true
	for _, id := range chains {
		o := snapshots.VerifyOptions{Integration: id, Now: time.Now(), Head: heads[id]}
		report, err := snapshots.VerifyOffline(ctx, reader, key, o)
		if err != nil {
			return err
		}
		good = good && report.Good()
		if err := printReport(os.Stdout, report, c.JSON); err != nil {
			return err
		}
	}
	if len(chains) == 0 {
		fmt.Fprintln(os.Stdout, "there is no snapshot yet")
	}
	if !good {
		return verifyFailed
	}
	return nil
}

// publicKey is the key itself, or the content of a file.
func (c *verifyCommand) publicKey() (string, error) {
	path := c.Key
	if path == "" {
		path = c.Data + "/" + snapshots.PublicKeyFile
	}
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
		return string(raw), nil
	case c.Key != "":
		return c.Key, nil
	}
	return "", fmt.Errorf("no public key in %s: give it with --key", c.Data)
}

// open finds the objects, and the heads that are recorded outside the store.
func (c *verifyCommand) open(ctx context.Context, open *stack) (snapshots.Reader, map[string]*snapshots.Head, error) {
	heads := map[string]*snapshots.Head{}
	if c.Head != "" {
		head, err := snapshots.ParseHead(c.Head)
		if err != nil || c.Integration == "" {
			return nil, nil, errors.Join(err, errors.New("--head goes with --integration and is SEQ:HASH"))
		}
		heads[c.Integration] = &head
	}
	if c.Folder != "" {
		return snapshots.FolderReader(os.DirFS(c.Folder)), heads, nil
	}
	store, err := c.store(ctx, open)
	if err != nil {
		return nil, nil, err
	}
	if len(heads) == 0 {
		heads, err = c.recordedHeads(ctx)
	}
	return snapshots.BucketReader(store), heads, err
}

// store is the bucket of SLUIS_S3_*, the running installation's, or the
// stopped one's, started for the while.
func (c *verifyCommand) store(ctx context.Context, open *stack) (*objectstore.Store, error) {
	if os.Getenv("SLUIS_S3_BUCKET") == "" {
		if cfg, ok := s3server.RunningConfig(c.Data+"/objects", bucketName); ok {
			return objectstore.Open(ctx, cfg)
		}
		if _, err := os.Stat(c.Data + "/objects"); err != nil {
			return nil, fmt.Errorf("%s holds no object store: say where it is with --data or --folder", c.Data)
		}
	}
	return openObjects(ctx, &dataDir{path: c.Data}, bucketFromEnvironment(), slog.New(slog.DiscardHandler), open)
}

// recordedHeads asks the database where each chain ends, so that a cut tail
// shows. Where no database runs the tail stays unchecked.
func (c *verifyCommand) recordedHeads(ctx context.Context) (map[string]*snapshots.Head, error) {
	heads := map[string]*snapshots.Head{}
	dsn := os.Getenv("SLUIS_DATABASE_URL")
	if dsn == "" {
		var running bool
		if dsn, running = pgserver.RunningDSN(c.Data+"/postgres", databaseName); !running {
			return heads, nil
		}
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("ask the database for the heads: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	return snapshots.RecordedHeads(ctx, conn)
}

// mostProblems is how many problems a report for people lists.
const mostProblems = 20

func printReport(w io.Writer, r snapshots.Report, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(r); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		return nil
	}
	fmt.Fprintf(w, "%s: %d manifests, head %d:%s\n", r.Integration, r.Checked, r.Head.Seq, r.Head.Hash)
	for _, f := range []struct {
		what    string
		finding snapshots.Finding
	}{
		{"chain whole", r.Chain}, {"signatures good", r.Signatures}, {"bodies intact", r.Bodies},
		{"locks in force", r.Locks}, {"tail present", r.Tail},
	} {
		fmt.Fprintf(w, "  %-16s %s\n", f.what, f.finding)
	}
	for i, p := range r.Problems {
		if i == mostProblems {
			fmt.Fprintf(w, "  ! and %d more: --json lists them all\n", len(r.Problems)-i)
			break
		}
		fmt.Fprintf(w, "  ! %s at %d: %s\n", p.Kind, p.Seq, p.What)
	}
	return nil
}
