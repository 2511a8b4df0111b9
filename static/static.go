// Package static holds the console's own files: style, script, icon and the
// vendored htmx 4.0.1 with its event stream extension (Zero-Clause BSD, licence
// beside the files). All are embedded in the binary, so that the console needs
// no other host.
//
// Each file is served under a URL that contains a hash of its content. A URL
// therefore never changes its meaning and may be cached for a year; a changed
// file has another URL. The package is a leaf: it imports nothing of Sluis.
package static

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Prefix is the path under which Handler expects to be mounted.
const Prefix = "/static/"

//go:embed files
var embedded embed.FS

type asset struct {
	name string
	body []byte
	etag string
	url  string
}

type catalogue struct {
	byName map[string]*asset
	byURL  map[string]*asset
}

var load = sync.OnceValue(func() catalogue {
	c := catalogue{byName: map[string]*asset{}, byURL: map[string]*asset{}}
	entries, err := fs.ReadDir(embedded, "files")
	if err != nil {
		panic(fmt.Sprintf("static: embedded files cannot be listed: %v", err))
	}
	for _, e := range entries {
		body, err := fs.ReadFile(embedded, path.Join("files", e.Name()))
		if err != nil {
			panic(fmt.Sprintf("static: embedded file %s cannot be read: %v", e.Name(), err))
		}
		a := newAsset(e.Name(), body)
		c.byName[a.name] = a
		c.byURL[a.url] = a
	}
	return c
})

func newAsset(name string, body []byte) *asset {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:8])
	ext := path.Ext(name)
	return &asset{
		name: name,
		body: body,
		etag: `"` + hash + `"`,
		url:  Prefix + strings.TrimSuffix(name, ext) + "." + hash + ext,
	}
}

// URL returns the content-hash URL of the named file ("console.css"). It panics
// for a name that does not exist, because a page would otherwise lose its style
// without a word.
func URL(name string) string {
	a, ok := load().byName[name]
	if !ok {
		panic("static: no file " + name)
	}
	return a.url
}

// Handler serves the files under their content-hash URLs with a year of
// caching and an ETag; any other path is 404. It answers GET and HEAD.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := load().byURL[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("ETag", a.etag)
		if t := mime.TypeByExtension(path.Ext(a.name)); t != "" {
			h.Set("Content-Type", t)
		}
		http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.body))
	})
}
