package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport says which of our own packages the code of a folder may import:
// cmd → handlers → {web, views, gate, snapshots}, snapshots → gate, web →
// views, and what lies below gate → gate → gate/audit. The longest prefix
// counts.
var mayImport = map[string][]string{
	"cmd":                {"handlers", "web", "views", "gate", "snapshots", "migrations"},
	"handlers":           {"handlers", "web", "views", "gate", "snapshots", "static"},
	"web":                {"views", "static"},
	"views":              {"views", "static"},
	"snapshots":          {"snapshots", "gate"},
	"gate":               {"gate/audit"},
	"gate/audit":         {},
	"gate/source":        {"gate"},
	"gate/target":        {"gate"},
	"gate/sandbox":       {"gate", "gate/sandbox"},
	"migrations":         {"migrations"},
	"static":             {},
	"gate/gatetest":      {"gate", "migrations/testdb"},
	"web/webtest":        {"web", "views"},
	"web/browsertest":    {"web", "static"},
	"snapshots/s3server": {"snapshots"},
}

// onlyIn says which folders may import a library.
var onlyIn = map[string][]string{
	"github.com/jackc/pgx":       {"gate", "snapshots", "web", "migrations", "cmd"},
	"github.com/labstack/echo":   {"web", "handlers"},
	"github.com/aws/aws-sdk-go":  {"snapshots"},
	"github.com/versity":         {"snapshots/s3server"},
	"github.com/riverqueue":      {"gate", "snapshots", "migrations", "cmd"},
	"github.com/chromedp":        {"web/browsertest"},
	"github.com/alecthomas/kong": {"cmd"},
}

func TestImportDirections(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); d.IsDir() && (base == "node_modules" || base == "var" || base != ".." && strings.HasPrefix(base, ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		seen++
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		checkFile(t, name, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Fatalf("only %d files were found: the walk is broken", seen)
	}
}

func checkFile(t *testing.T, name, rel string) {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), rel, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	from := path.Dir(rel)
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if own, ok := strings.CutPrefix(imported, "sluis/"); ok && own != from && !under(own, allowed(from)) {
			t.Errorf("%s imports %s, which is against the direction of the packages", rel, own)
		}
		for library, folders := range onlyIn {
			if strings.HasPrefix(imported, library) && !under(from, folders) {
				t.Errorf("%s imports %s, which belongs to %s", rel, imported, strings.Join(folders, ", "))
			}
		}
	}
}

// allowed is the entry with the longest prefix of a folder.
func allowed(from string) []string {
	for dir := from; dir != "."; dir = path.Dir(dir) {
		if list, ok := mayImport[dir]; ok {
			return list
		}
	}
	return nil
}

func under(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") })
}
