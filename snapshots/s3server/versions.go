package s3server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// ListObjectVersions lists without the gateway's repetition: where a page ended
// with a key's current version, the gateway begins the next page with it again,
// and with pages of one entry never gets on.
func (s *lockedStore) ListObjectVersions(ctx context.Context, in *s3.ListObjectVersionsInput) (s3response.ListVersionsResult, error) {
	key, version := aws.ToString(in.KeyMarker), aws.ToString(in.VersionIdMarker)
	if key == "" || version == "" || !s.isCurrent(aws.ToString(in.Bucket), key, version) {
		return s.Posix.ListObjectVersions(ctx, in)
	}
	wider := *in
	wider.MaxKeys = aws.Int32(aws.ToInt32(in.MaxKeys) + 1)
	out, err := s.Posix.ListObjectVersions(ctx, &wider)
	if err != nil {
		return out, err
	}
	out.MaxKeys = in.MaxKeys
	if len(out.Versions) > 0 && aws.ToString(out.Versions[0].Key) == key && aws.ToString(out.Versions[0].VersionId) == version {
		out.Versions = out.Versions[1:]
	}
	if len(out.DeleteMarkers) > 0 && aws.ToString(out.DeleteMarkers[0].Key) == key && aws.ToString(out.DeleteMarkers[0].VersionId) == version {
		out.DeleteMarkers = out.DeleteMarkers[1:]
	}
	return out, nil
}

func (s *lockedStore) isCurrent(bucket, key, version string) bool {
	current, err := s.meta.RetrieveAttribute(nil, bucket, key, attrVersion)
	return err == nil && string(current) == version
}

// reapplyLocks gives every unlocked version in a bucket with a default retention
// that retention, counted from when it was written: a server of before, or a
// crash, may have left one without.
func (s *lockedStore) reapplyLocks(ctx context.Context) error {
	buckets, err := s.Posix.ListBucketsAndOwners(ctx)
	if err != nil {
		return fmt.Errorf("re-apply locks: %w", err)
	}
	for _, b := range buckets {
		cfg, err := s.lockConfig(ctx, b.Name)
		if err != nil {
			return fmt.Errorf("re-apply locks in bucket %s: %w", b.Name, err)
		}
		if !cfg.Enabled || cfg.DefaultRetention == nil {
			continue
		}
		if err := s.reapplyIn(ctx, b.Name, cfg.DefaultRetention); err != nil {
			return fmt.Errorf("re-apply locks in bucket %s: %w", b.Name, err)
		}
	}
	return nil
}

func (s *lockedStore) reapplyIn(ctx context.Context, bucket string, d *types.DefaultRetention) error {
	in := &s3.ListObjectVersionsInput{Bucket: &bucket, MaxKeys: aws.Int32(1000)}
	for {
		page, err := s.ListObjectVersions(ctx, in)
		if err != nil {
			return err
		}
		for _, v := range page.Versions {
			if err := s.lockIfFree(ctx, bucket, v, d); err != nil {
				return err
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		in.KeyMarker, in.VersionIdMarker = page.NextKeyMarker, page.NextVersionIdMarker
	}
}

func (s *lockedStore) lockIfFree(ctx context.Context, bucket string, v s3response.ObjectVersion, d *types.DefaultRetention) error {
	held, err := s.retention(ctx, bucket, *v.Key, *v.VersionId)
	until := defaultUntil(d, aws.ToTime(v.LastModified))
	if err != nil || held.Mode != "" || !until.After(s.now()) {
		return err
	}
	retention, err := json.Marshal(types.ObjectLockRetention{Mode: d.Mode, RetainUntilDate: &until})
	if err != nil {
		return fmt.Errorf("encode retention: %w", err)
	}
	return s.PutObjectRetention(ctx, bucket, *v.Key, *v.VersionId, retention)
}

// hasCode says whether an error is this one of the gateway's, whatever details it
// carries. The whole is compared: S3 has one code for several of them.
func hasCode(err error, want s3err.ErrorCode) bool {
	e, ok := errors.AsType[s3err.S3Error](err)
	return ok && e.BaseError() == s3err.GetAPIError(want)
}
