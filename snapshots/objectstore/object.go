package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Receipt is what the store says about a locked object.
type Receipt struct {
	Key       string
	VersionID string
	// SHA256 is the digest of the body as the store computed and keeps it; zero
	// where the object was written without one.
	SHA256 [32]byte
	Size   int64 // bytes
	// Mode is COMPLIANCE, GOVERNANCE, or empty for no lock.
	Mode string
	// RetainUntil is the end of the lock by the store's clock.
	RetainUntil time.Time
}

// tokenKey names the metadata field with which a writer recognises its own object.
const tokenKey = "sluis-write"

// Put writes a new object and locks it in COMPLIANCE mode until retainUntil.
//
// Errors: ErrExists when the key is taken, ErrNotLocked when the store took the
// object without the lock. After any other error the object may have been
// written: Head says.
func (s *Store) Put(ctx context.Context, key string, body []byte, retainUntil time.Time) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, bodyLimit)
	defer cancel()
	sum := sha256.Sum256(body)
	token := rand.Text()
	out, err := s.putUntilAnswered(ctx, key, body, sum, token, retainUntil)
	if code(err) == codePrecondition {
		return s.recognise(ctx, key, token, retainUntil, err)
	}
	if err != nil {
		return Receipt{}, s.explain(err, "write "+key)
	}
	r := Receipt{Key: key, VersionID: aws.ToString(out.VersionId), SHA256: sum, Size: int64(len(body))}
	return s.confirmLock(ctx, r, retainUntil)
}

// putUntilAnswered repeats on a conflict between two conditional writes, which
// S3 answers to both of them while neither has finished.
func (s *Store) putUntilAnswered(ctx context.Context, key string, body []byte, sum [32]byte, token string, retainUntil time.Time) (*s3.PutObjectOutput, error) {
	for n := 1; ; n++ {
		out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
			IfNoneMatch:               aws.String("*"),
			ChecksumAlgorithm:         types.ChecksumAlgorithmSha256,
			ChecksumSHA256:            aws.String(base64.StdEncoding.EncodeToString(sum[:])),
			ObjectLockMode:            types.ObjectLockModeCompliance,
			ObjectLockRetainUntilDate: aws.Time(retainUntil.UTC()),
			Metadata:                  map[string]string{tokenKey: token},
		})
		if code(err) != codeConflict || n == attempts {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(n) * 50 * time.Millisecond):
		}
	}
}

// recognise decides whose object holds the key: ours when an answer to an earlier
// attempt of this very write was lost.
func (s *Store) recognise(ctx context.Context, key, token string, retainUntil time.Time, taken error) (Receipt, error) {
	first, err := s.firstVersion(ctx, key)
	if err != nil {
		return Receipt{}, err
	}
	head, err := s.head(ctx, key, first.VersionID)
	if err != nil {
		return Receipt{}, err
	}
	if head.Metadata[tokenKey] != token {
		return Receipt{}, fmt.Errorf("%w: bucket %s, key %s: %w", ErrExists, s.bucket, key, taken)
	}
	return s.confirmLock(ctx, receiptOf(key, head), retainUntil)
}

// confirmLock reads the lock back from the store.
func (s *Store) confirmLock(ctx context.Context, r Receipt, retainUntil time.Time) (Receipt, error) {
	if r.VersionID == "" {
		return r, fmt.Errorf("%w: the store gave %s no version id; use a bucket with versioning and Object Lock", ErrNotLocked, r.Key)
	}
	var err error
	if r.Mode, r.RetainUntil, err = s.Retention(ctx, r.Key, r.VersionID); err != nil {
		return r, err
	}
	// Stores keep whole seconds or milliseconds, so up to a second may be missing.
	if r.Mode != string(types.ObjectLockModeCompliance) || r.RetainUntil.Before(retainUntil.Add(-time.Second)) {
		return r, fmt.Errorf("%w: the store keeps %s in mode %q until %s, asked was COMPLIANCE until %s; use a store with Object Lock",
			ErrNotLocked, r.Key, r.Mode, r.RetainUntil.Format(time.RFC3339), retainUntil.Format(time.RFC3339))
	}
	return r, nil
}

// Get reads a version's whole body, the current one's for an empty version id.
// A body whose stored checksum does not fit is an error. ErrNotFound.
func (s *Store) Get(ctx context.Context, key, versionID string) (_ []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, bodyLimit)
	defer cancel()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: &key, VersionId: optional(versionID), ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return nil, s.lookUpError(err, "read", key, versionID)
	}
	defer func() { err = errors.Join(err, out.Body.Close()) }()
	if size := aws.ToInt64(out.ContentLength); size > maxBody {
		return nil, fmt.Errorf("object store: %s has %d bytes, more than the %d that a snapshot may have; it is none of ours", key, size, maxBody)
	}
	var buf bytes.Buffer
	buf.Grow(int(aws.ToInt64(out.ContentLength)) + bytes.MinRead)
	if _, err := buf.ReadFrom(io.LimitReader(out.Body, maxBody+1)); err != nil {
		return nil, s.explain(err, "read "+key)
	}
	if buf.Len() > maxBody {
		return nil, fmt.Errorf("object store: %s has more than %d bytes; it is none of ours", key, maxBody)
	}
	return buf.Bytes(), nil
}

// Head describes the first version ever written under the key, which is the only
// one unless somebody wrote or deleted over it. ErrNotFound.
func (s *Store) Head(ctx context.Context, key string) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	first, err := s.firstVersion(ctx, key)
	if err != nil {
		return Receipt{}, err
	}
	head, err := s.head(ctx, key, first.VersionID)
	if err != nil {
		return Receipt{}, err
	}
	r := receiptOf(key, head)
	r.VersionID = first.VersionID
	r.Mode, r.RetainUntil, err = s.Retention(ctx, key, first.VersionID)
	return r, err
}

func (s *Store) head(ctx context.Context, key, versionID string) (*s3.HeadObjectOutput, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &s.bucket, Key: &key, VersionId: optional(versionID), ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return nil, s.lookUpError(err, "look at", key, versionID)
	}
	return out, nil
}

func receiptOf(key string, head *s3.HeadObjectOutput) Receipt {
	r := Receipt{Key: key, VersionID: aws.ToString(head.VersionId), Size: aws.ToInt64(head.ContentLength)}
	if sum, err := base64.StdEncoding.DecodeString(aws.ToString(head.ChecksumSHA256)); err == nil && len(sum) == len(r.SHA256) {
		copy(r.SHA256[:], sum)
	}
	return r
}

func optional(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}
