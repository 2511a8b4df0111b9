package static_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluis/static"
)

func get(t *testing.T, path, etag string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	static.Handler().ServeHTTP(w, r)
	return w
}

func TestFilesAreServedByContentHash(t *testing.T) {
	types := map[string]string{
		"console.css": "text/css", "console.js": "text/javascript", "htmx.js": "text/javascript",
		"hx-sse.js": "text/javascript", "icon.svg": "image/svg+xml", "htmx.LICENSE.txt": "text/plain",
	}
	for name, want := range types {
		url := static.URL(name)
		if !regexp.MustCompile(`^/static/.+\.[0-9a-f]{16}\.[a-z]+$`).MatchString(url) {
			t.Errorf("%s: URL %s", name, url)
		}
		w := get(t, url, "")
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), want) || w.Body.Len() == 0 {
			t.Errorf("%s: %d %s", name, w.Code, w.Header().Get("Content-Type"))
		}
		if !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: Cache-Control %q", name, w.Header().Get("Cache-Control"))
		}
		if again := get(t, url, w.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s: %d for its own ETag", name, again.Code)
		}
	}
	for _, path := range []string{"/static/console.css", "/static/", "/static/console.0000000000000000.css", "/static/../static.go"} {
		if w := get(t, path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestUnknownNamePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for a name that does not exist")
		}
	}()
	static.URL("missing.css")
}

// The vendored files are those of the npm package that the lock file names.
func TestVendoredFilesAreThePackages(t *testing.T) {
	dist := filepath.Join("..", "web", "browsertest", "node_modules", "htmx.org")
	if _, err := os.Stat(dist); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("htmx.org is missing: run make test, which installs it")
		}
		t.Skip("htmx.org is missing: run make test, which installs it")
	}
	for name, source := range map[string]string{
		"htmx.js": "dist/htmx.min.js", "hx-sse.js": "dist/ext/hx-sse.min.js", "htmx.LICENSE.txt": "LICENSE",
	} {
		want, err := os.ReadFile(filepath.Join(dist, source))
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, static.URL(name), "").Body.String(); got != string(want) {
			t.Errorf("%s differs from %s", name, source)
		}
	}
}
