package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// markerFile says that a directory is ours: only such a one is ever emptied.
const markerFile = ".sluis-data"

// dataDir is where everything of one installation lives.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir takes the directory for this process. A second process on the
// same data gets one clear sentence.
func openDataDir(path string, fresh bool) (*dataDir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory %q: %w", path, err)
	}
	if err := claimDir(abs); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(abs, markerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another sluis is running on %s: stop it, or give this one its own directory with --data", abs), lock.Close())
	}
	d := &dataDir{path: abs, lock: lock}
	if fresh {
		if err := d.empty(); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

// claimDir makes the directory, or checks that it is ours or empty. The
// private Postgres runs as another user when we are root, so that the
// directory itself can be entered by all; what is secret in it is not readable.
func claimDir(abs string) error {
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(abs, markerFile)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and was not made by sluis: give an empty directory with --data", abs)
	}
	return nil
}

// empty removes everything but the marker that is locked.
func (d *dataDir) empty() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	for _, e := range entries {
		if e.Name() == markerFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.path, e.Name())); err != nil {
			return fmt.Errorf("start over: %w", err)
		}
	}
	return nil
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *dataDir) close() error { return d.lock.Close() }

// readJSON reads a small file of ours; found is false where there is none.
func (d *dataDir) readJSON(name string, into any) (found bool, err error) {
	raw, err := os.ReadFile(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", d.file(name), err)
	}
	return true, nil
}

// writeJSON replaces a small file of ours in one step, readable by us alone.
func (d *dataDir) writeJSON(name string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	tmp := d.file(name + ".new")
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(tmp, d.file(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
