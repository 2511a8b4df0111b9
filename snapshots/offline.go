package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"sluis/snapshots/objectstore"
)

// VerifyOffline verifies a chain with the public key alone: no database, no
// service, no secret. verifierKey is Keys.VerifierKey, the content of
// snapshot-key.pub. What is wrong with the chain is in the report; the error
// is about reading it; where there is no chain at all and no head says that
// there should be one, it is an fs.ErrNotExist.
func VerifyOffline(ctx context.Context, r Reader, verifierKey string, opts VerifyOptions) (Report, error) {
	v, err := note.NewVerifier(strings.TrimSpace(verifierKey))
	if err != nil {
		return Report{}, fmt.Errorf("the verifier key is not a public note key (name+hash+data): %w", err)
	}
	if opts.Integration == "" {
		return Report{}, errors.New("verify: say which integration's chain")
	}
	report, err := verifyChain(ctx, r, v, opts)
	if err == nil && report.Checked == 0 && report.Good() {
		return report, fmt.Errorf("there is no chain of %s here: %w", opts.Integration, fs.ErrNotExist)
	}
	return report, err
}

// ChainsIn lists the integrations that a reader has a chain of.
func ChainsIn(ctx context.Context, r Reader) ([]string, error) {
	keys, err := r.Keys(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	var names []string
	for _, key := range keys {
		name, rest, ok := strings.Cut(key, "/")
		if ok && strings.HasPrefix(rest, "manifest-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// FolderReader reads a chain that was copied to a folder, each object a file
// at its key: os.DirFS("copy") for a folder called copy.
func FolderReader(fsys fs.FS) Reader { return folderReader{fsys} }

type folderReader struct{ fsys fs.FS }

func (r folderReader) Keys(_ context.Context, prefix string) ([]string, error) {
	root := path.Dir(prefix + "x") // the deepest folder that the prefix names
	var keys []string
	err := fs.WalkDir(r.fsys, root, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == root {
			return fs.SkipAll
		}
		if err == nil && !d.IsDir() && strings.HasPrefix(name, prefix) {
			keys = append(keys, name)
		}
		return err
	})
	return keys, err
}

func (r folderReader) Read(_ context.Context, key string) ([]byte, error) {
	if !fs.ValidPath(key) {
		return nil, fmt.Errorf("%q is no key: %w", key, fs.ErrNotExist)
	}
	return fs.ReadFile(r.fsys, key)
}

// BucketReader reads a chain from its bucket, and its locks. It reads the
// first version of each key, which is the one that was sealed: what was put
// over it later, or deletes it, shows as a covered lock. It sees the bucket as
// it is at the first call of Keys for an integration; use one for each pass.
func BucketReader(store Store) LockReader {
	return &bucketReader{store: store, listed: map[string]bool{}, sealed: map[string]sealedObject{}}
}

type bucketReader struct {
	store  Store
	listed map[string]bool
	sealed map[string]sealedObject
}

// sealedObject is the first version of a key.
type sealedObject struct {
	version string
	covered bool
}

func (r *bucketReader) Keys(ctx context.Context, prefix string) ([]string, error) {
	if err := r.list(ctx, prefix[:strings.IndexByte(prefix, '/')+1]); err != nil {
		return nil, err
	}
	var keys []string
	for key := range r.sealed {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// list notes the first version of every key of a folder: the last in the
// listing, which has the newest first.
func (r *bucketReader) list(ctx context.Context, folder string) error {
	if r.listed[folder] {
		return nil
	}
	found := map[string]sealedObject{} // of this listing alone: another may have met the same keys
	for o, err := range r.store.Versions(ctx, folder) {
		if err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		_, above := found[o.Key]
		switch {
		case !o.DeleteMarker:
			found[o.Key] = sealedObject{o.VersionID, above}
		case !above:
			found[o.Key] = sealedObject{covered: true}
		}
	}
	for key, o := range found {
		if o.version != "" { // else nothing but delete markers
			r.sealed[key] = o
		}
	}
	r.listed[folder] = true
	return nil
}

func (r *bucketReader) Read(ctx context.Context, key string) ([]byte, error) {
	o, ok := r.sealed[key]
	if !ok {
		return nil, fmt.Errorf("the bucket has no %s: %w", key, fs.ErrNotExist)
	}
	raw, err := r.store.Get(ctx, key, o.version)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return raw, err
}

func (r *bucketReader) Lock(ctx context.Context, key string) (Lock, error) {
	o, ok := r.sealed[key]
	if !ok {
		return Lock{}, fmt.Errorf("the bucket has no %s: %w", key, fs.ErrNotExist)
	}
	mode, until, err := r.store.Retention(ctx, key, o.version)
	if errors.Is(err, objectstore.ErrNotFound) {
		return Lock{}, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return Lock{Mode: mode, Until: until, Covered: o.covered}, err
}
