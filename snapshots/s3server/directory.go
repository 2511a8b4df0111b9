package s3server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluis/snapshots/objectstore"
)

// ErrInUse means that a running server owns the directory.
var ErrInUse = errors.New("S3 directory is in use by another sluis process")

const (
	format       = "sluis object store, locks in extended attributes, 1\n"
	region       = "us-east-1"
	takeOverTime = 2 * time.Second // for the child of a killed parent to end
)

type credentialFile struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// Credentials returns the access key of the store in dir, made at random when
// there is none yet. It is kept in a file that only our user can read.
func Credentials(dir string) (accessKey, secretKey string, err error) {
	path := filepath.Join(dir, "credentials")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = makeCredentials(path)
	}
	if err != nil {
		return "", "", fmt.Errorf("S3 credentials: %w", err)
	}
	var c credentialFile
	if err := json.Unmarshal(raw, &c); err != nil || c.AccessKey == "" || c.SecretKey == "" {
		return "", "", fmt.Errorf("S3 credentials: %s does not hold a key pair: remove it, and a new one is made", path)
	}
	return c.AccessKey, c.SecretKey, nil
}

// makeCredentials publishes the file by a link, so that of two processes both
// end up with the same one, and none reads half of it.
func makeCredentials(path string) ([]byte, error) {
	raw, err := json.Marshal(credentialFile{AccessKey: "SLUIS" + rand.Text()[:15], SecretKey: rand.Text() + rand.Text()[:14]})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "credentials-") // mode 0600
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// RunningConfig is how to reach a bucket of the server that another process runs
// in dir, so that commands can use it meanwhile; false when none runs.
func RunningConfig(dir, bucket string) (objectstore.Config, bool) {
	f, err := lockFile(dir)
	if err == nil {
		_ = f.Close()
	}
	if !errors.Is(err, ErrInUse) {
		return objectstore.Config{}, false
	}
	addr, err := os.ReadFile(filepath.Join(dir, "address"))
	if err != nil {
		return objectstore.Config{}, false
	}
	access, secret, err := Credentials(dir)
	if err != nil {
		return objectstore.Config{}, false
	}
	return configFor(strings.TrimSpace(string(addr)), bucket, access, secret), true
}

func configFor(addr, bucket, access, secret string) objectstore.Config {
	return objectstore.Config{Endpoint: "http://" + addr, Bucket: bucket, Region: region, AccessKey: access, SecretKey: secret}
}

// takeDir makes the directory ready for this process alone.
func takeDir(ctx context.Context, dir string) (*os.File, error) {
	for _, d := range []string{dir, objectsDir(dir), versionsDir(dir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("open S3 directory: %w", err)
		}
	}
	lock, err := awaitLock(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkAttributes(dir), checkFormat(dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func objectsDir(dir string) string  { return filepath.Join(dir, "objects") }
func versionsDir(dir string) string { return filepath.Join(dir, "versions") }

func awaitLock(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, takeOverTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := lockFile(dir)
		if !errors.Is(err, ErrInUse) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

func lockFile(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open S3 directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s; stop that process first or choose another directory", ErrInUse, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// checkAttributes refuses a file system without extended attributes: locks live in them.
func checkAttributes(dir string) error {
	for _, d := range []string{objectsDir(dir), versionsDir(dir)} {
		const name = "user.sluis-probe"
		if err := unix.Setxattr(d, name, []byte{1}, 0); err != nil {
			return fmt.Errorf("%s cannot hold locks: its file system has no extended attributes (%w); put the data on ext4, xfs, btrfs or APFS", d, err)
		}
		if err := unix.Removexattr(d, name); err != nil {
			return fmt.Errorf("%s cannot hold locks: %w", d, err)
		}
	}
	return nil
}

// checkFormat writes the marker into an empty store and refuses one that holds
// objects without it or with another: in another format no lock would be seen.
func checkFormat(dir string) error {
	path := filepath.Join(dir, "format")
	got, err := os.ReadFile(path)
	switch {
	case err == nil && string(got) == format:
		return nil
	case err == nil:
		return fmt.Errorf("%s says %q, this program keeps %q: use the program that made the data", path, got, format)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open S3 directory: %w", err)
	}
	entries, err := os.ReadDir(objectsDir(dir))
	if err != nil {
		return fmt.Errorf("open S3 directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s holds objects but %s is missing: restore that file from a backup; without it nobody knows where the locks are kept", objectsDir(dir), path)
	}
	return writeWhole(path, format)
}

// writeWhole replaces a small file so that no reader sees half of it.
func writeWhole(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
