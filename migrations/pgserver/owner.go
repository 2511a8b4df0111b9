package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// owner is the unprivileged user that PostgreSQL runs as when we are root. A nil
// owner stands for our own user.
type owner struct {
	name     string
	uid, gid int
}

func unprivileged() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &owner{name: name, uid: uid, gid: gid}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: add one, or start sluis as another user")
}

// canReach checks that the user may pass through every directory above and including dir.
func (o *owner) canReach(dir string) error {
	if o == nil {
		return nil
	}
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			return fmt.Errorf("look at %s: %w", d, err)
		}
		if !o.mayEnter(info) {
			return fmt.Errorf("%w: PostgreSQL refuses to run as root and runs as %s, who cannot enter %s: put the data elsewhere, for example under /var/lib/sluis",
				ErrClosedDir, o.name, d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}

func (o *owner) mayEnter(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	mode := info.Mode().Perm()
	switch {
	case int(st.Uid) == o.uid:
		return mode&0o100 != 0
	case int(st.Gid) == o.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// binaryGlobs are the places where packages put PostgreSQL's server programs:
// Debian, Fedora and RHEL, Homebrew on Apple silicon and on Intel.
var binaryGlobs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
}

// findBinaries returns the directory with initdb and postgres: the newest
// version, or that of the data where there is data already.
func findBinaries(want string) (string, error) {
	var dirs []string
	for _, glob := range binaryGlobs {
		found, err := filepath.Glob(glob)
		if err != nil {
			return "", fmt.Errorf("look for PostgreSQL: %w", err)
		}
		dirs = append(dirs, found...)
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	best, bestVersion := "", -1
	for _, dir := range slices.Compact(dirs) {
		v := majorVersion(dir)
		if v > bestVersion && (want == "" || want == strconv.Itoa(v)) {
			best, bestVersion = dir, v
		}
	}
	switch {
	case best != "":
		return best, nil
	case want != "":
		return "", fmt.Errorf("%w: the data was made by version %s; on Debian: apt-get install postgresql-%s; on macOS: brew install postgresql@%s",
			ErrNoBinaries, want, want, want)
	default:
		return "", fmt.Errorf("%w: on Debian and Ubuntu: apt-get install postgresql; on macOS: brew install postgresql", ErrNoBinaries)
	}
}

// majorVersion asks the programs themselves, because only Debian names the
// directory after the version; -1 where a program is missing.
func majorVersion(dir string) int {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return -1
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return -1
	}
	// "postgres (PostgreSQL) 15.14 (Debian …)"
	_, rest, _ := strings.Cut(string(out), ") ")
	digits := strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return -1
	}
	v, err := strconv.Atoi(digits[0])
	if err != nil {
		return -1
	}
	return v
}

// BinDir is the directory of PostgreSQL's programs on this machine (pg_dump among
// them), or ErrNoBinaries with what to install.
func BinDir() (string, error) { return findBinaries("") }
