package s3server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// lockedStore is the gateway's store on files with the guarantees of the package
// comment. What it does not override is the gateway's own.
type lockedStore struct {
	*posix.Posix
	meta *stampingMeta
	keys *keyLocks
	disk *disk
	now  func() time.Time
}

func newLockedStore(objects, versions string, now func() time.Time) (*lockedStore, error) {
	m := &stampingMeta{}
	p, err := posix.New(objects, m, posix.PosixOpts{VersioningDir: versions, CopyObjectThreshold: 5 << 30})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	d, err := openDisk(objects, versions)
	if err != nil {
		return nil, err
	}
	return &lockedStore{Posix: p, meta: m, keys: newKeyLocks(), disk: d, now: now}, nil
}

func (s *lockedStore) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	if err := s.defaultLock(ctx, &in); err != nil {
		return s3response.PutObjectOutput{}, err
	}
	mark := stamp{hold: holdRequested(in.ObjectLockLegalHoldStatus)}
	if in.ObjectLockMode != "" {
		retention, err := json.Marshal(types.ObjectLockRetention{
			Mode: types.ObjectLockRetentionMode(in.ObjectLockMode), RetainUntilDate: in.ObjectLockRetainUntilDate})
		if err != nil {
			return s3response.PutObjectOutput{}, fmt.Errorf("encode retention: %w", err)
		}
		mark.retention = retention
	}
	name := *in.Bucket + "/" + *in.Key
	defer s.keys.lock(*in.Bucket, *in.Key)()
	s.meta.pending.Store(name, mark)
	defer s.meta.pending.Delete(name)
	out, err := s.Posix.PutObject(ctx, in)
	return out, s.synced(err)
}

// defaultLock fills in the bucket's default retention where the request names none.
func (s *lockedStore) defaultLock(ctx context.Context, in *s3response.PutObjectInput) error {
	cfg, err := s.lockConfig(ctx, *in.Bucket)
	if err != nil || in.ObjectLockMode != "" || cfg.DefaultRetention == nil {
		return err
	}
	in.ObjectLockMode = types.ObjectLockMode(cfg.DefaultRetention.Mode)
	in.ObjectLockRetainUntilDate = aws.Time(defaultUntil(cfg.DefaultRetention, s.now()))
	return nil
}

func defaultUntil(d *types.DefaultRetention, from time.Time) time.Time {
	return from.UTC().AddDate(int(aws.ToInt32(d.Years)), 0, int(aws.ToInt32(d.Days)))
}

// lockConfig is the bucket's lock configuration, the zero value when it has none.
func (s *lockedStore) lockConfig(ctx context.Context, bucket string) (auth.BucketLockConfig, error) {
	raw, err := s.Posix.GetObjectLockConfiguration(ctx, bucket)
	if hasCode(err, s3err.ErrObjectLockConfigurationNotFound) {
		return auth.BucketLockConfig{}, nil
	}
	if err != nil {
		return auth.BucketLockConfig{}, err
	}
	var cfg auth.BucketLockConfig
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return auth.BucketLockConfig{}, fmt.Errorf("decode lock configuration of bucket %s: %w", bucket, err)
	}
	return cfg, nil
}

func (s *lockedStore) DeleteObject(ctx context.Context, in *s3.DeleteObjectInput) (*s3.DeleteObjectOutput, error) {
	defer s.keys.lock(aws.ToString(in.Bucket), aws.ToString(in.Key))()
	if version := aws.ToString(in.VersionId); version != "" {
		if err := s.refuseLocked(ctx, *in.Bucket, aws.ToString(in.Key), version); err != nil {
			return nil, err
		}
	}
	out, err := s.Posix.DeleteObject(ctx, in)
	return out, s.synced(err)
}

// DeleteObjects goes through DeleteObject, so that each key gets the same checks.
func (s *lockedStore) DeleteObjects(ctx context.Context, in *s3.DeleteObjectsInput) (s3response.DeleteResult, error) {
	result := s3response.DeleteResult{Deleted: []types.DeletedObject{}, Error: []types.Error{}}
	for _, o := range in.Delete.Objects {
		out, err := s.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: in.Bucket, Key: o.Key, VersionId: o.VersionId})
		if err != nil {
			result.Error = append(result.Error, s3err.ObjectDeleteError(o.Key, o.VersionId, err))
			continue
		}
		deleted := types.DeletedObject{Key: o.Key, DeleteMarker: out.DeleteMarker, VersionId: o.VersionId}
		if aws.ToBool(out.DeleteMarker) {
			deleted.DeleteMarkerVersionId = out.VersionId
		}
		result.Deleted = append(result.Deleted, deleted)
	}
	return result, nil
}

// refuseLocked answers AccessDenied for a version under legal hold, also after
// its retention has ended, and for one in COMPLIANCE retention. GOVERNANCE was
// judged before, where the request's bypass header is known.
func (s *lockedStore) refuseLocked(ctx context.Context, bucket, key, version string) error {
	if hold, err := s.Posix.GetObjectLegalHold(ctx, bucket, key, version); err == nil && aws.ToBool(hold) {
		return s3err.GetAPIError(s3err.ErrObjectLocked)
	}
	retention, err := s.retention(ctx, bucket, key, version)
	if err != nil {
		return err
	}
	if retention.Mode == types.ObjectLockRetentionModeCompliance && aws.ToTime(retention.RetainUntilDate).After(s.now()) {
		return s3err.GetAPIError(s3err.ErrObjectLocked)
	}
	return nil
}

// retention is the version's own, the zero value where it has or can have none.
func (s *lockedStore) retention(ctx context.Context, bucket, key, version string) (types.ObjectLockRetention, error) {
	raw, err := s.Posix.GetObjectRetention(ctx, bucket, key, version)
	for _, none := range []s3err.ErrorCode{s3err.ErrNoSuchObjectLockConfiguration, s3err.ErrMissingObjectLockConfiguration,
		s3err.ErrNoSuchKey, s3err.ErrNoSuchVersion, s3err.ErrMethodNotAllowed} {
		if hasCode(err, none) {
			return types.ObjectLockRetention{}, nil
		}
	}
	if err != nil {
		return types.ObjectLockRetention{}, err
	}
	var r types.ObjectLockRetention
	if err := json.Unmarshal(raw, &r); err != nil {
		return types.ObjectLockRetention{}, fmt.Errorf("decode retention of %s: %w", key, err)
	}
	return r, nil
}

func (s *lockedStore) PutObjectRetention(ctx context.Context, bucket, key, version string, retention []byte) error {
	defer s.keys.lock(bucket, key)()
	var asked types.ObjectLockRetention
	if err := json.Unmarshal(retention, &asked); err != nil {
		return fmt.Errorf("decode retention of %s: %w", key, err)
	}
	held, err := s.retention(ctx, bucket, key, version)
	if err != nil {
		return err
	}
	inForce := held.Mode == types.ObjectLockRetentionModeCompliance && aws.ToTime(held.RetainUntilDate).After(s.now())
	if inForce && (asked.Mode != held.Mode || aws.ToTime(asked.RetainUntilDate).Before(*held.RetainUntilDate)) {
		return s3err.GetAPIError(s3err.ErrObjectLocked)
	}
	return s.synced(s.Posix.PutObjectRetention(ctx, bucket, key, version, retention))
}

func (s *lockedStore) PutObjectLegalHold(ctx context.Context, bucket, key, version string, on bool) error {
	defer s.keys.lock(bucket, key)()
	return s.synced(s.Posix.PutObjectLegalHold(ctx, bucket, key, version, on))
}

// GetObject adds the lock to the answer, as S3 does and the gateway does for HEAD only.
func (s *lockedStore) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	out, err := s.Posix.GetObject(ctx, in)
	if err != nil {
		return out, err
	}
	version := aws.ToString(out.VersionId)
	retention, err := s.retention(ctx, *in.Bucket, *in.Key, version)
	if err != nil {
		_ = out.Body.Close()
		return nil, err
	}
	out.ObjectLockMode = types.ObjectLockMode(retention.Mode)
	out.ObjectLockRetainUntilDate = retention.RetainUntilDate
	if hold, err := s.Posix.GetObjectLegalHold(ctx, *in.Bucket, *in.Key, version); err == nil && hold != nil {
		out.ObjectLockLegalHoldStatus = types.ObjectLockLegalHoldStatusOff
		if *hold {
			out.ObjectLockLegalHoldStatus = types.ObjectLockLegalHoldStatusOn
		}
	}
	return out, nil
}

func (s *lockedStore) CreateBucket(ctx context.Context, in *s3.CreateBucketInput, acl []byte) error {
	return s.synced(s.Posix.CreateBucket(ctx, in, acl))
}

// DeleteBucket is refused for a bucket with Object Lock, also an empty one: the
// gateway overlooks versions that lie behind a delete marker.
func (s *lockedStore) DeleteBucket(ctx context.Context, bucket string) error {
	cfg, err := s.lockConfig(ctx, bucket)
	if err != nil {
		return err
	}
	if cfg.Enabled {
		return s3err.GetBucketErr(s3err.ErrVersionedBucketNotEmpty, bucket)
	}
	return s.synced(s.Posix.DeleteBucket(ctx, bucket))
}

func (s *lockedStore) PutObjectLockConfiguration(ctx context.Context, bucket string, config []byte) error {
	return s.synced(s.Posix.PutObjectLockConfiguration(ctx, bucket, config))
}

func (s *lockedStore) PutBucketVersioning(ctx context.Context, bucket string, status types.BucketVersioningStatus) error {
	return s.synced(s.Posix.PutBucketVersioning(ctx, bucket, status))
}

// synced puts a successful change on the disk before it is acknowledged.
func (s *lockedStore) synced(err error) error {
	if err != nil {
		return err
	}
	return s.disk.sync()
}
