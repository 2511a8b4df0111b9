package web_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The direction of imports around the platform: web → views → {i18n, static};
// static is a leaf. PostgreSQL is known to users, accounts and sessions only,
// Echo to web and handlers only.
func TestImports(t *testing.T) {
	for _, rule := range []struct {
		folder    string
		forbidden []string
		except    map[string]bool // files that may
	}{
		{"../static", []string{"sluis/", "github.com/"}, nil},
		{"../views", []string{"sluis/web", "sluis/gate", "sluis/snapshots", "sluis/handlers", "github.com/jackc/", "github.com/labstack/"}, nil},
		{".", []string{"sluis/gate", "sluis/snapshots", "sluis/handlers"}, nil},
		{".", []string{"github.com/jackc/"}, map[string]bool{"users.go": true, "accounts.go": true, "sessions.go": true}},
		{"../handlers", []string{"github.com/jackc/", "github.com/aws/"}, nil},
		{"../gate", []string{"sluis/web", "sluis/views", "sluis/handlers", "sluis/snapshots", "github.com/labstack/"}, nil},
		{"../snapshots", []string{"sluis/web", "sluis/views", "sluis/handlers", "github.com/labstack/"}, nil},
	} {
		for path, imports := range importsUnder(t, rule.folder) {
			if rule.except[filepath.Base(path)] {
				continue
			}
			for _, name := range imports {
				for _, prefix := range rule.forbidden {
					if strings.HasPrefix(name, prefix) {
						t.Errorf("%s imports %s", path, name)
					}
				}
			}
		}
	}
}

// importsUnder lists what each file outside tests imports, by path.
func importsUnder(t *testing.T, folder string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			found[path] = append(found[path], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("%s holds no Go files", folder)
	}
	return found
}
