package objectstore

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Retention is the lock of a version as the store holds it; an empty mode means
// that there is none. ErrNotFound.
func (s *Store) Retention(ctx context.Context, key, versionID string) (mode string, until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out, err := s.client.GetObjectRetention(ctx, &s3.GetObjectRetentionInput{
		Bucket: &s.bucket, Key: &key, VersionId: optional(versionID)})
	if code(err) == codeNoLock {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, s.lookUpError(err, "read the retention of", key, versionID)
	}
	if out.Retention == nil {
		return "", time.Time{}, nil
	}
	return string(out.Retention.Mode), aws.ToTime(out.Retention.RetainUntilDate).UTC(), nil
}

// Extend moves the end of a COMPLIANCE lock to a later moment. An earlier one is
// refused by the store: ErrLocked.
func (s *Store) Extend(ctx context.Context, key, versionID string, until time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := s.client.PutObjectRetention(ctx, &s3.PutObjectRetentionInput{
		Bucket: &s.bucket, Key: &key, VersionId: optional(versionID),
		Retention: &types.ObjectLockRetention{
			Mode: types.ObjectLockRetentionModeCompliance, RetainUntilDate: aws.Time(until.UTC())},
	})
	return s.lockError(ctx, err, "extend the lock of", key, versionID)
}

// DeleteVersion asks the store to remove one version. Snapshots are never
// deleted: this exists to show that the store refuses. ErrLocked, ErrNotFound.
func (s *Store) DeleteVersion(ctx context.Context, key, versionID string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key, VersionId: optional(versionID)})
	return s.lockError(ctx, err, "delete", key, versionID)
}

// lockError tells a refusal because of a lock from one because of missing rights:
// S3 has one code for both, so the lock itself is looked at.
func (s *Store) lockError(ctx context.Context, err error, attempted, key, versionID string) error {
	if err == nil {
		return nil
	}
	if code(err) == codeAccessDenied && s.held(ctx, key, versionID) {
		return fmt.Errorf("%w: bucket %s: %s %s version %s: %w", ErrLocked, s.bucket, attempted, key, versionID, err)
	}
	return s.lookUpError(err, attempted, key, versionID)
}

// held says whether the version has a retention or a legal hold. A retention that
// has run out does not count as refusing, but the store's clock decides that, not
// ours, so any retention counts here.
func (s *Store) held(ctx context.Context, key, versionID string) bool {
	if mode, _, err := s.Retention(ctx, key, versionID); err == nil && mode != "" {
		return true
	}
	hold, err := s.client.GetObjectLegalHold(ctx, &s3.GetObjectLegalHoldInput{
		Bucket: &s.bucket, Key: &key, VersionId: optional(versionID)})
	return err == nil && hold.LegalHold != nil && hold.LegalHold.Status == types.ObjectLockLegalHoldStatusOn
}
