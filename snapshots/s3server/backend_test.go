package s3server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
	"golang.org/x/sync/errgroup"
)

const testBucket = "bucket"

// newStore is a store in this very process; the gateway's moves the working
// directory of the process, which the next one moves again.
func newStore(t *testing.T, now func() time.Time) *lockedStore {
	t.Helper()
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lock, err := takeDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newLockedStore(objectsDir(dir), versionsDir(dir), now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = lock.Close()
		if err := os.Chdir(back); err != nil {
			t.Error(err)
		}
	})
	if err := s.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(testBucket), ObjectLockEnabledForBucket: aws.Bool(true), CreateBucketConfiguration: &types.CreateBucketConfiguration{}}, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	return s
}

func setDefault(t *testing.T, s *lockedStore, days int32) {
	t.Helper()
	created := time.Now()
	raw, err := json.Marshal(auth.BucketLockConfig{Enabled: true, CreatedAt: &created,
		DefaultRetention: &types.DefaultRetention{Mode: types.ObjectLockRetentionModeCompliance, Days: &days}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutObjectLockConfiguration(t.Context(), testBucket, raw); err != nil {
		t.Fatal(err)
	}
}

func write(ctx context.Context, s *lockedStore, key string, until time.Time) (string, error) {
	in := s3response.PutObjectInput{Bucket: aws.String(testBucket), Key: &key, Body: bytes.NewReader([]byte("x")), ContentLength: aws.Int64(1)}
	if !until.IsZero() {
		in.ObjectLockMode, in.ObjectLockRetainUntilDate = types.ObjectLockModeCompliance, &until
	}
	out, err := s.PutObject(ctx, in)
	return out.VersionID, err
}

func mustWrite(t *testing.T, s *lockedStore, key string, until time.Time) string {
	t.Helper()
	version, err := write(t.Context(), s, key, until)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func checkRetention(t *testing.T, s *lockedStore, key, version string, want time.Time) {
	t.Helper()
	r, err := s.retention(t.Context(), testBucket, key, version)
	if err != nil || r.Mode != types.ObjectLockRetentionModeCompliance || aws.ToTime(r.RetainUntilDate).Sub(want).Abs() > time.Minute {
		t.Errorf("%s: %s until %v, %v, want %v", key, r.Mode, r.RetainUntilDate, err, want)
	}
}

func TestDefaultRetentionIsStampedAtTheWrite(t *testing.T) {
	s := newStore(t, time.Now)
	setDefault(t, s, 3)
	checkRetention(t, s, "default", mustWrite(t, s, "default", time.Time{}), time.Now().AddDate(0, 0, 3))
	own := time.Now().AddDate(0, 0, 9)
	checkRetention(t, s, "own", mustWrite(t, s, "own", own), own)
}

func TestLocksAreReappliedAtStart(t *testing.T) {
	s := newStore(t, time.Now)
	free := mustWrite(t, s, "free", time.Time{})
	earlier := mustWrite(t, s, "twice", time.Time{})
	later := mustWrite(t, s, "twice", time.Time{})
	own := time.Now().AddDate(0, 0, 9)
	locked := mustWrite(t, s, "locked", own)
	setDefault(t, s, 3)
	if err := s.reapplyLocks(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := time.Now().AddDate(0, 0, 3)
	checkRetention(t, s, "free", free, want)
	checkRetention(t, s, "twice", earlier, want)
	checkRetention(t, s, "twice", later, want)
	checkRetention(t, s, "locked", locked, own)
}

// TestLockIsPartOfTheFile looks at the object before the gateway sets the lock
// itself: a crash there must find it locked.
func TestLockIsPartOfTheFile(t *testing.T) {
	s := newStore(t, time.Now)
	f, err := os.Create(filepath.Join(t.TempDir(), "unpublished"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s.meta.pending.Store(testBucket+"/k", stamp{retention: []byte("R"), hold: true})
	if err := s.meta.StoreAttribute(f, testBucket, "k", attrETag, []byte("e")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{attrETag: "e", attrRetention: "R", attrHold: "\x01"} {
		if got, err := s.meta.RetrieveAttribute(f, "", "", name); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
	version := mustWrite(t, s, "whole", time.Now().Add(time.Hour))
	if _, left := s.meta.pending.Load(testBucket + "/whole"); left || version == "" {
		t.Error("the stamp outlives the write")
	}
}

// TestDeleteChecksAgain stands for a delete that was allowed before the lock came.
func TestDeleteChecksAgain(t *testing.T) {
	now := time.Now()
	s := newStore(t, func() time.Time { return now })
	until := now.Add(time.Hour)
	version := mustWrite(t, s, "k", until)
	remove := func() error {
		_, err := s.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(testBucket), Key: aws.String("k"), VersionId: &version})
		return err
	}
	if err := remove(); !hasCode(err, s3err.ErrObjectLocked) {
		t.Errorf("in retention: %v", err)
	}
	if err := s.PutObjectLegalHold(t.Context(), testBucket, "k", version, true); err != nil {
		t.Fatal(err)
	}
	now = until.Add(time.Second)
	if err := remove(); !hasCode(err, s3err.ErrObjectLocked) {
		t.Errorf("under legal hold after retention: %v", err)
	}
	if err := s.PutObjectLegalHold(t.Context(), testBucket, "k", version, false); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Errorf("free: %v", err)
	}
}

func TestRetentionIsNotWeakenedByARace(t *testing.T) {
	now := time.Now()
	s := newStore(t, func() time.Time { return now })
	until := now.Add(time.Hour)
	version := mustWrite(t, s, "k", until)
	change := func(mode types.ObjectLockRetentionMode, to time.Time) error {
		raw, err := json.Marshal(types.ObjectLockRetention{Mode: mode, RetainUntilDate: &to})
		if err != nil {
			t.Fatal(err)
		}
		return s.PutObjectRetention(t.Context(), testBucket, "k", version, raw)
	}
	for _, c := range []struct {
		name string
		mode types.ObjectLockRetentionMode
		to   time.Time
		ok   bool
	}{
		{"earlier", types.ObjectLockRetentionModeCompliance, until.Add(-time.Minute), false},
		{"other mode", types.ObjectLockRetentionModeGovernance, until.Add(time.Hour), false},
		{"same", types.ObjectLockRetentionModeCompliance, until, true},
		{"later", types.ObjectLockRetentionModeCompliance, until.Add(time.Hour), true},
	} {
		if err := change(c.mode, c.to); (err == nil) != c.ok || (err != nil && !hasCode(err, s3err.ErrObjectLocked)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestPutAndDeleteRace: whatever the order, an acknowledged locked version stays locked.
func TestPutAndDeleteRace(t *testing.T) {
	s := newStore(t, time.Now)
	until := time.Now().Add(time.Hour)
	versions := make([]string, 40)
	var g errgroup.Group
	for i := range versions {
		g.Go(func() (err error) {
			versions[i], err = write(t.Context(), s, "k", until)
			return err
		})
		g.Go(func() error {
			_, err := s.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(testBucket), Key: aws.String("k")})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		checkRetention(t, s, "k", v, until)
	}
}

func TestUnofferedAndRefused(t *testing.T) {
	s := newStore(t, time.Now)
	for name, err := range map[string]error{
		"copy":          failed(s.CopyObject(t.Context(), s3response.CopyObjectInput{})),
		"create upload": failed(s.CreateMultipartUpload(t.Context(), s3response.CreateMultipartUploadInput{})),
		"upload part":   failed(s.UploadPart(t.Context(), nil)),
		"copy part":     failed(s.UploadPartCopy(t.Context(), nil)),
	} {
		if !hasCode(err, s3err.ErrNotImplemented) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.CompleteMultipartUpload(t.Context(), nil); !hasCode(err, s3err.ErrNotImplemented) {
		t.Errorf("complete upload: %v", err)
	}
	if err := s.DeleteBucket(t.Context(), testBucket); !hasCode(err, s3err.ErrVersionedBucketNotEmpty) {
		t.Errorf("delete bucket: %v", err)
	}
	if err := s.DeleteBucket(t.Context(), "none"); errors.Is(err, nil) {
		t.Error("a bucket that does not exist was deleted")
	}
}

func failed[T any](_ T, err error) error { return err }
