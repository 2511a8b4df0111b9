package snapshots

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	"sluis/gate"
)

func testManifest() Manifest {
	return Manifest{
		Audit: AuditHead{Hash: hashOf([]byte("a")), Pos: 7},
		Body: Body{ContentHash: hashOf([]byte("b")), ContentSize: 12, Encoding: bodyEncoding, Key: "care/body-x", Kind: bodyFull,
			StoredHash: hashOf([]byte("c")), StoredSize: 9},
		Entities: 3, Format: manifestFormat, Integration: "care", Mutations: Position{Last: 40, Open: []int64{12, 39}},
		Prev: hashOf([]byte("d")), RetainUntil: start.Add(time.Hour), Seq: 2, TakenAt: start.Add(time.Microsecond),
	}
}

func TestManifestIsACanonicalNote(t *testing.T) {
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	m := testManifest()
	raw, err := m.seal(keys)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.seal(keys)
	if err != nil || string(again) != string(raw) {
		t.Errorf("sealed twice: %v", err)
	}
	text, _, _ := strings.Cut(string(raw), "\n")
	if canonical, err := gate.Canonical([]byte(text), 0); err != nil || string(canonical) != text {
		t.Errorf("%s is not canonical: %v", text, err)
	}
	opened, err := openManifest(raw, keys.verifier)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, opened); diff != "" {
		t.Error(diff)
	}
}

func TestOpenManifestRefuses(t *testing.T) {
	keys, _, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	good, err := testManifest().text()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from, to string
		unsigned bool
	}{
		"another format":   {from: `"format":1`, to: `"format":2`},
		"an unknown field": {from: `"format":1`, to: `"format":1,"formats":1`},
		"a repeated name":  {from: `"format":1`, to: `"format":1,"format":1`},
		"spaces":           {from: `,"format"`, to: `, "format"`},
		"a short hash":     {from: hashOf([]byte("d")).String(), to: "00"},
		"upper-case hex":   {from: hashOf([]byte("d")).String(), to: strings.ToUpper(hashOf([]byte("d")).String())},
		"a delta":          {from: `"kind":"full"`, to: `"kind":"delta"`},
		"no JSON":          {from: good, to: "hello\n"},
		"no signature":     {unsigned: true},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		raw := []byte(text)
		if !c.unsigned {
			if raw, err = note.Sign(&note.Note{Text: text}, keys.signer); err != nil {
				t.Fatal(err)
			}
		}
		_, err := openManifest(raw, keys.verifier)
		var signature *signatureError
		if err == nil || errors.As(err, &signature) != c.unsigned {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestSeq(t *testing.T) {
	for key, want := range map[string]int64{
		"care/manifest-000000000012": 12, "care/manifest-1000000000000": 1_000_000_000_000,
		"care/manifest-12": 0, "care/manifest-000000000000": 0, "care/manifest-00000000001x": 0,
		"care/body-12": 0, "carex/manifest-000000000012": 0, "care/manifest--00000000001": 0,
	} {
		if seq, ok := manifestSeq("care", key); ok != (want > 0) || (ok && seq != want) {
			t.Errorf("%s: %d %v, want %d", key, seq, ok, want)
		}
	}
}
