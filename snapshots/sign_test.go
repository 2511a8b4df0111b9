package snapshots

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestLoadOrCreateKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	const callers = 8
	got := make([]string, callers)
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			k, err := LoadOrCreateKeys(dir)
			if err != nil {
				t.Error(err)
			}
			got[n] = k.VerifierKey()
		})
	}
	wg.Wait()
	for _, public := range got {
		if public != got[0] || !strings.HasPrefix(public, "sluis/") {
			t.Fatalf("keys %q", got)
		}
	}
	for name, mode := range map[string]os.FileMode{privateFile: 0o600, publicFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want %v", name, info, err, mode)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("files left: %v, %v", files, err)
	}
	public, err := os.ReadFile(filepath.Join(dir, publicFile))
	if err != nil || string(public) != got[0]+"\n" {
		t.Errorf("public half %q, %v", public, err)
	}
	if err := os.Chmod(filepath.Join(dir, privateFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateKeys(dir); err == nil {
		t.Error("a private key that everybody can read was taken")
	}
}

func TestKeysNeverPrintTheSecret(t *testing.T) {
	k, private, err := GenerateKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseKeys("  " + private + "\n")
	if err != nil || again.VerifierKey() != k.VerifierKey() {
		t.Errorf("%v, %v", again, err)
	}
	if k.String() != k.VerifierKey() || strings.Contains(k.String(), private) {
		t.Errorf("prints %q", k.String())
	}
	for _, bad := range []string{"", "PRIVATE+KEY+", private[:len(private)-4], strings.Replace(private, "test", "tesu", 1)} {
		if _, err := ParseKeys(bad); err == nil || strings.Contains(err.Error(), private[len(private)-20:len(private)-4]) {
			t.Errorf("ParseKeys of a damaged key: %v", err)
		}
	}
	if _, _, err := GenerateKeys("two words"); err == nil {
		t.Error("a name with a space was taken")
	}
}
