// Command dump writes or checks migrations/schema.sql, the schema that the
// numbered files make, without the job queue's and goose's own tables. It runs
// a private PostgreSQL for that.
//
//	go run ./migrations/dump -check   fails when schema.sql differs
//	go run ./migrations/dump -write   writes it anew
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/migrations"
	"sluis/migrations/pgserver"
)

func main() {
	write := flag.Bool("write", false, "write the file")
	check := flag.Bool("check", false, "fail when the file differs")
	path := flag.String("file", "migrations/schema.sql", "the dump")
	flag.Parse()
	if *write == *check {
		fmt.Fprintln(os.Stderr, "dump: give one of -write and -check")
		os.Exit(2)
	}
	if err := run(context.Background(), *path, *write); err != nil {
		fmt.Fprintln(os.Stderr, "dump:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, write bool) error {
	fresh, err := dump(ctx)
	if err != nil {
		return err
	}
	if write {
		return os.WriteFile(path, fresh, 0o644)
	}
	committed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return compare(path, committed, fresh)
}

// compare names the first line that differs.
func compare(path string, committed, fresh []byte) error {
	if bytes.Equal(committed, fresh) {
		return nil
	}
	old, now := strings.Split(string(committed), "\n"), strings.Split(string(fresh), "\n")
	for i := range max(len(old), len(now)) {
		o, n := lineAt(old, i), lineAt(now, i)
		if o != n {
			return fmt.Errorf("%s:%d says %q where the migrations make %q; run: go run ./migrations/dump -write", path, i+1, o, n)
		}
	}
	return nil
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

func dump(ctx context.Context) (_ []byte, err error) {
	bin, err := pgserver.BinDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluis-dump-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL's user has to get in
		return nil, err
	}
	server, err := pgserver.Start(ctx, pgserver.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop(ctx)) }()
	const database = "sluis"
	if err := server.EnsureDatabase(ctx, database); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, server.DSN(database))
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := migrations.Tables(ctx, pool); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "pg_dump"), "--schema-only", "--no-owner", "--no-privileges",
		"--exclude-table=goose_db_version", "--exclude-table=goose_db_version_id_seq", "--dbname="+server.DSN(database))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("pg_dump: %w: %s", err, stderr.String())
	}
	return normalise(out), nil
}

// normalise drops what depends on the version of pg_dump: comments, session
// settings, psql commands and runs of empty lines.
func normalise(text []byte) []byte {
	var out bytes.Buffer
	out.WriteString("-- Made from the numbered files by: go run ./migrations/dump -write\n")
	blank := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \n")
		switch {
		case line == "":
			blank = true
			continue
		case strings.HasPrefix(line, "--"), strings.HasPrefix(line, `\`),
			strings.HasPrefix(line, "SET "), strings.HasPrefix(line, "SELECT pg_catalog.set_config("):
			continue
		}
		if blank {
			out.WriteByte('\n')
			blank = false
		}
		out.WriteString(line + "\n")
	}
	return out.Bytes()
}
