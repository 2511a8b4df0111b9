package objectstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server/s3test"
)

func TestMain(m *testing.M) { os.Exit(s3test.Run(m)) }

// lockTime is the retention of test objects. It is real time of the store's
// clock: long enough for the attempts of a test, short enough to clean up after.
const lockTime = 2 * time.Minute

// subject is the store under test, and the prefix of this test's keys: the
// embedded server, or any other that the environment names (SLUIS_TEST_S3_ENDPOINT,
// _BUCKET, optionally _REGION; keys by the SDK's usual chain). There, objects
// stay locked for some minutes after the tests.
func subject(t *testing.T) (*objectstore.Store, string) {
	t.Helper()
	endpoint, bucket := os.Getenv("SLUIS_TEST_S3_ENDPOINT"), os.Getenv("SLUIS_TEST_S3_BUCKET")
	if endpoint == "" && bucket == "" {
		return s3test.Store(t), "t/"
	}
	store, err := objectstore.Open(t.Context(), objectstore.Config{
		Endpoint: endpoint, Bucket: bucket, Region: os.Getenv("SLUIS_TEST_S3_REGION")})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store, fmt.Sprintf("conformance/%d/%s/", time.Now().UnixNano(), t.Name())
}

func put(t *testing.T, s *objectstore.Store, key, body string, lock time.Duration) objectstore.Receipt {
	t.Helper()
	r, err := s.Put(t.Context(), key, []byte(body), time.Now().Add(lock))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return fmt.Sprint(err)
}

func TestPutGivesBackWhatTheStoreKeeps(t *testing.T) {
	s, prefix := subject(t)
	body, key := "a snapshot", prefix+"put"
	until := time.Now().Add(lockTime)
	r, err := s.Put(t.Context(), key, []byte(body), until)
	if err != nil {
		t.Fatal(err)
	}
	if r.VersionID == "" || r.Mode != "COMPLIANCE" || r.RetainUntil.Sub(until).Abs() > time.Second {
		t.Errorf("receipt %+v, asked until %s", r, until)
	}
	want := objectstore.Receipt{Key: key, VersionID: r.VersionID, SHA256: sha256.Sum256([]byte(body)),
		Size: int64(len(body)), Mode: r.Mode, RetainUntil: r.RetainUntil}
	head, err := s.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]objectstore.Receipt{"put": r, "head": head} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, version := range []string{"", r.VersionID} {
		if got, err := s.Get(t.Context(), key, version); err != nil || string(got) != body {
			t.Errorf("get version %q: %q, %v", version, got, err)
		}
	}
	raw, err := s.Client().GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(s.Bucket()), Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Body.Close()
	if raw.ObjectLockMode != types.ObjectLockModeCompliance || aws.ToTime(raw.ObjectLockRetainUntilDate).Sub(r.RetainUntil).Abs() > time.Second {
		t.Errorf("GET shows lock %q until %v", raw.ObjectLockMode, raw.ObjectLockRetainUntilDate)
	}
}

func TestNotFound(t *testing.T) {
	s, prefix := subject(t)
	r := put(t, s, prefix+"one", "x", lockTime)
	put(t, s, prefix+"one-longer", "y", lockTime)
	for name, err := range map[string]error{
		"get key":       second(s.Get(t.Context(), prefix+"none", "")),
		"get version":   second(s.Get(t.Context(), prefix+"one-longer", r.VersionID)),
		"head key":      second(s.Head(t.Context(), prefix+"none")),
		"head a prefix": second(s.Head(t.Context(), prefix+"on")),
	} {
		if !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestKeyIsWrittenOnce(t *testing.T) {
	s, prefix := subject(t)
	key := prefix + "once"
	first := put(t, s, key, "first", lockTime)
	if _, err := s.Put(t.Context(), key, []byte("first"), time.Now().Add(lockTime)); !errors.Is(err, objectstore.ErrExists) {
		t.Errorf("second put: %v", err)
	}
	t.Run("nor over a delete marker", func(t *testing.T) {
		if err := s.DeleteVersion(t.Context(), key, ""); err != nil { // S3 allows this: it removes nothing
			t.Fatal(err)
		}
		got, err := s.Head(t.Context(), key)
		if err != nil || got.VersionID != first.VersionID {
			t.Errorf("head behind a delete marker: %+v, %v", got, err)
		}
		if body, err := s.Get(t.Context(), key, first.VersionID); err != nil || string(body) != "first" {
			t.Errorf("get behind a delete marker: %q, %v", body, err)
		}
	})
}

func TestPutRace(t *testing.T) {
	s, prefix := subject(t)
	for round := range 5 {
		key := fmt.Sprintf("%srace-%d", prefix, round)
		const writers = 8
		receipts, errs := make([]objectstore.Receipt, writers), make([]error, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				receipts[i], errs[i] = s.Put(t.Context(), key, fmt.Appendf(nil, "writer %d", i), time.Now().Add(lockTime))
			})
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("writers %d and %d both won", winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, objectstore.ErrExists):
				t.Errorf("writer %d: %v", i, err)
			}
		}
		if winner < 0 {
			t.Fatal("nobody won")
		}
		body, err := s.Get(t.Context(), key, receipts[winner].VersionID)
		if err != nil || string(body) != fmt.Sprintf("writer %d", winner) {
			t.Errorf("winner %d, body %q, %v", winner, body, err)
		}
		if n := len(versions(t, s, key, 0)); n != 1 {
			t.Errorf("%d versions", n)
		}
	}
}

// TestLockHolds tries each way of S3 to remove or weaken a locked version, as
// the owner of the store's root key.
func TestLockHolds(t *testing.T) {
	s, prefix := subject(t)
	key := prefix + "locked"
	r := put(t, s, key, "evidence", lockTime)
	bucket, c := aws.String(s.Bucket()), s.Client()
	retain := func(ctx context.Context, mode types.ObjectLockRetentionMode, until time.Time, bypass bool) error {
		in := &s3.PutObjectRetentionInput{Bucket: bucket, Key: &key, VersionId: &r.VersionID,
			Retention: &types.ObjectLockRetention{Mode: mode, RetainUntilDate: &until}}
		if bypass {
			in.BypassGovernanceRetention = aws.Bool(true)
		}
		_, err := c.PutObjectRetention(ctx, in)
		return err
	}
	earlier := r.RetainUntil.Add(-time.Minute)
	cases := []struct {
		name    string
		attempt func(context.Context) error
	}{
		{"delete the version", func(ctx context.Context) error { return s.DeleteVersion(ctx, key, r.VersionID) }},
		{"delete with the bypass header", func(ctx context.Context) error {
			_, err := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: &key, VersionId: &r.VersionID, BypassGovernanceRetention: aws.Bool(true)})
			return err
		}},
		{"delete in a batch", func(ctx context.Context) error { return batchDelete(ctx, s, key, r.VersionID) }},
		{"shorten", func(ctx context.Context) error { return s.Extend(ctx, key, r.VersionID, earlier) }},
		{"shorten with the bypass header", func(ctx context.Context) error {
			return retain(ctx, types.ObjectLockRetentionModeCompliance, earlier, true)
		}},
		{"change to GOVERNANCE", func(ctx context.Context) error {
			return retain(ctx, types.ObjectLockRetentionModeGovernance, r.RetainUntil.Add(time.Hour), true)
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.attempt(t.Context())
			if code(err) != "AccessDenied" {
				t.Errorf("got %v", err)
			}
			mode, until, err := s.Retention(t.Context(), key, r.VersionID)
			if err != nil || mode != "COMPLIANCE" || !until.Equal(r.RetainUntil) {
				t.Errorf("lock is now %s until %v, %v", mode, until, err)
			}
			if body, err := s.Get(t.Context(), key, r.VersionID); err != nil || string(body) != "evidence" {
				t.Errorf("body %q, %v", body, err)
			}
		})
	}
	if err := s.DeleteVersion(t.Context(), key, r.VersionID); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("delete: %v, want ErrLocked", err)
	}
	if err := s.Extend(t.Context(), key, r.VersionID, earlier); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("shorten: %v, want ErrLocked", err)
	}
}

// batchDelete turns the entry's error in a DeleteObjects answer into an error.
func batchDelete(ctx context.Context, s *objectstore.Store, key, version string) error {
	out, err := s.Client().DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: aws.String(s.Bucket()), BypassGovernanceRetention: aws.Bool(true),
		Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: &key, VersionId: &version}}}})
	if err != nil {
		return err
	}
	if len(out.Errors) == 1 {
		return &smithy.GenericAPIError{Code: aws.ToString(out.Errors[0].Code), Message: aws.ToString(out.Errors[0].Message)}
	}
	return nil
}

func TestOverwriteKeepsTheLockedVersion(t *testing.T) {
	s, prefix := subject(t)
	key := prefix + "over"
	r := put(t, s, key, "evidence", lockTime)
	_, err := s.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(s.Bucket()), Key: &key, Body: bytes.NewReader([]byte("forged"))})
	if err != nil { // S3 allows it: it makes a new version
		t.Fatal(err)
	}
	got, err := s.Head(t.Context(), key)
	if err != nil || got.VersionID != r.VersionID || got.SHA256 != r.SHA256 || !got.RetainUntil.Equal(r.RetainUntil) {
		t.Errorf("head %+v, %v, want the first version", got, err)
	}
	if body, err := s.Get(t.Context(), key, r.VersionID); err != nil || string(body) != "evidence" {
		t.Errorf("body %q, %v", body, err)
	}
	if err := s.DeleteVersion(t.Context(), key, r.VersionID); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("delete the earlier version: %v", err)
	}
}

func TestExtend(t *testing.T) {
	s, prefix := subject(t)
	r := put(t, s, prefix+"extend", "x", lockTime)
	later := r.RetainUntil.Add(time.Minute)
	if err := s.Extend(t.Context(), r.Key, r.VersionID, later); err != nil {
		t.Fatal(err)
	}
	if _, until, err := s.Retention(t.Context(), r.Key, r.VersionID); err != nil || until.Sub(later).Abs() > time.Second {
		t.Errorf("until %v, %v, want %v", until, err, later)
	}
}

// awaitDeletable deletes a version whose lock is about to end. The store's clock
// decides when that is, so there is nothing to wait for but its answer.
func awaitDeletable(t *testing.T, s *objectstore.Store, key, version string) error {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(15 * time.Second)
	for {
		err := s.DeleteVersion(t.Context(), key, version)
		if !errors.Is(err, objectstore.ErrLocked) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

func TestLockEndsInTimeAndNotBefore(t *testing.T) {
	s, prefix := subject(t)
	r := put(t, s, prefix+"short", "x", 3*time.Second)
	if err := s.DeleteVersion(t.Context(), r.Key, r.VersionID); !errors.Is(err, objectstore.ErrLocked) {
		t.Fatalf("before the end: %v", err)
	}
	if err := awaitDeletable(t, s, r.Key, r.VersionID); err != nil {
		t.Fatalf("after the end: %v", err)
	}
	if now := time.Now(); now.Before(r.RetainUntil.Add(-time.Second)) {
		t.Errorf("deleted at %v, locked until %v", now, r.RetainUntil)
	}
}

func TestLegalHoldOutlivesRetention(t *testing.T) {
	s, prefix := subject(t)
	held := put(t, s, prefix+"held", "x", 2*time.Second)
	free := put(t, s, prefix+"free", "x", 2*time.Second)
	hold := func(status types.ObjectLockLegalHoldStatus) {
		t.Helper()
		_, err := s.Client().PutObjectLegalHold(t.Context(), &s3.PutObjectLegalHoldInput{Bucket: aws.String(s.Bucket()),
			Key: &held.Key, VersionId: &held.VersionID, LegalHold: &types.ObjectLockLegalHold{Status: status}})
		if err != nil {
			t.Fatal(err)
		}
	}
	hold(types.ObjectLockLegalHoldStatusOn)
	if err := awaitDeletable(t, s, free.Key, free.VersionID); err != nil { // the same retention has ended
		t.Fatal(err)
	}
	if err := s.DeleteVersion(t.Context(), held.Key, held.VersionID); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("under legal hold: %v", err)
	}
	if err := batchDelete(t.Context(), s, held.Key, held.VersionID); code(err) != "AccessDenied" {
		t.Errorf("under legal hold, in a batch: %v", err)
	}
	hold(types.ObjectLockLegalHoldStatusOff)
	if err := s.DeleteVersion(t.Context(), held.Key, held.VersionID); err != nil {
		t.Errorf("after the hold: %v", err)
	}
}

func TestBucketCannotLoseItsLock(t *testing.T) {
	s, _ := subject(t)
	bucket := aws.String(s.Bucket())
	_, err := s.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended}})
	if err == nil {
		t.Error("versioning could be suspended")
	}
	if err := s.EnsureBucket(t.Context()); err != nil {
		t.Error(err)
	}
}
