package snapshots

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// The files of LoadOrCreateKeys.
const (
	privateFile = "snapshot-key"
	publicFile  = "snapshot-key.pub"
	keyPrefix   = "sluis/"
)

// Keys signs and checks manifests. The key's name is "sluis/" and the name of
// the installation, so that two installations' chains cannot be mistaken for
// one another.
type Keys struct {
	signer   note.Signer
	verifier note.Verifier
	public   string
}

// VerifierKey is the public half in the form that VerifyOffline takes:
// "name+hash+base64". It is not a secret.
func (k Keys) VerifierKey() string { return k.public }

// String is the public half: printing Keys never prints the secret.
func (k Keys) String() string { return k.public }

// GenerateKeys makes a key pair for an installation and returns it with its
// private form, which ParseKeys reads. The name must be free of spaces and "+".
func GenerateKeys(installation string) (Keys, string, error) {
	private, _, err := note.GenerateKey(rand.Reader, keyPrefix+installation)
	if err != nil {
		return Keys{}, "", fmt.Errorf("make a snapshot key: %w", err)
	}
	k, err := ParseKeys(private)
	return k, private, err
}

// ParseKeys reads a private key as GenerateKeys returns it, for installations
// that keep it in the environment. An error never quotes the key.
func ParseKeys(private string) (Keys, error) {
	private = strings.TrimSpace(private)
	signer, err := note.NewSigner(private)
	if err != nil {
		return Keys{}, errors.New("the snapshot key is not a private note key (PRIVATE+KEY+name+hash+data)")
	}
	public, err := publicOf(private, signer.Name())
	if err != nil {
		return Keys{}, err
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return Keys{}, fmt.Errorf("derive the public snapshot key: %w", err)
	}
	return Keys{signer: signer, verifier: verifier, public: public}, nil
}

// publicOf derives the verifier key of a key that note.NewSigner accepted:
// its last field is the base64 of one algorithm byte and the ed25519 seed.
func publicOf(private, name string) (string, error) {
	fields := strings.SplitN(private, "+", 5)
	raw, err := base64.StdEncoding.DecodeString(fields[len(fields)-1])
	if err != nil || len(raw) != 1+ed25519.SeedSize {
		return "", errors.New("the snapshot key has no ed25519 seed")
	}
	key, ok := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("the snapshot key has no ed25519 public half")
	}
	return note.NewEd25519VerifierKey(name, key)
}

// LoadOrCreateKeys reads the key pair of dir, and makes one on the first call:
// the private half readable by its owner alone, the public half by everybody.
// Processes that call it at once get one and the same pair.
func LoadOrCreateKeys(dir string) (Keys, error) {
	path := filepath.Join(dir, privateFile)
	private, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKey(dir, path); err != nil {
			return Keys{}, err
		}
		private, err = os.ReadFile(path)
	}
	if err != nil {
		return Keys{}, fmt.Errorf("read the snapshot key: %w", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		return Keys{}, errors.Join(fmt.Errorf("the snapshot key %s must be readable by its owner alone (chmod 600)", path), err)
	}
	k, err := ParseKeys(string(private))
	if err != nil {
		return Keys{}, fmt.Errorf("%s: %w", path, err)
	}
	public := filepath.Join(dir, publicFile)
	if have, err := os.ReadFile(public); err == nil && string(have) == k.public+"\n" {
		return k, nil
	}
	if err := os.WriteFile(public, []byte(k.public+"\n"), 0o644); err != nil {
		return Keys{}, fmt.Errorf("write the public snapshot key: %w", err)
	}
	return k, nil
}

// createKey publishes a new private key under path, whole or not at all. A key
// that another process published meanwhile stays.
func createKey(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the key directory: %w", err)
	}
	name := make([]byte, 4)
	if _, err := rand.Read(name); err != nil {
		return fmt.Errorf("name the installation: %w", err)
	}
	_, private, err := GenerateKeys(hex.EncodeToString(name))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, privateFile+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write the snapshot key: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(private + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the snapshot key: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("publish the snapshot key: %w", err)
	}
	return nil
}
