package objectstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Object is one entry of a listing.
type Object struct {
	Key string
	// VersionID, Latest and DeleteMarker are filled by Versions only.
	VersionID    string
	Latest       bool
	DeleteMarker bool
	Size         int64 // bytes
	LastModified time.Time
}

// List yields the current objects whose keys start with prefix, in the store's
// order. It ends at the first error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix},
			func(o *s3.ListObjectsV2PaginatorOptions) { o.StopOnDuplicateToken = true })
		for pages.HasMorePages() {
			page, err := s.nextPage(ctx, pages)
			if err != nil {
				yield(Object{}, s.explain(err, "list "+prefix))
				return
			}
			for _, o := range page.Contents {
				if !yield(Object{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), LastModified: aws.ToTime(o.LastModified)}, nil) {
					return
				}
			}
		}
	}
}

func (s *Store) nextPage(ctx context.Context, pages *s3.ListObjectsV2Paginator) (*s3.ListObjectsV2Output, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return pages.NextPage(ctx)
}

// Versions yields every version and delete marker whose key starts with prefix,
// by key, the newest first. It ends at the first error.
func (s *Store) Versions(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return s.versions(ctx, prefix, 0)
}

// versions lists in pages of the given size, the store's own for 0.
func (s *Store) versions(ctx context.Context, prefix string, pageSize int32) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		in := &s3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: &prefix}
		if pageSize > 0 {
			in.MaxKeys = &pageSize
		}
		for {
			page, err := s.versionsPage(ctx, in)
			if err != nil {
				yield(Object{}, s.explain(err, "list versions of "+prefix))
				return
			}
			for _, o := range page.objects {
				if !yield(o, nil) {
					return
				}
			}
			if !page.more {
				return
			}
			if aws.ToString(page.key) == aws.ToString(in.KeyMarker) && aws.ToString(page.version) == aws.ToString(in.VersionIdMarker) {
				yield(Object{}, fmt.Errorf("object store: listing versions of %q stands still at %q: the store's paging is broken", prefix, aws.ToString(page.key)))
				return
			}
			in.KeyMarker, in.VersionIdMarker = page.key, page.version
		}
	}
}

type versionsPage struct {
	objects      []Object
	more         bool
	key, version *string // where the next page begins
}

func (s *Store) versionsPage(ctx context.Context, in *s3.ListObjectVersionsInput) (versionsPage, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out, err := s.client.ListObjectVersions(ctx, in)
	if err != nil {
		return versionsPage{}, err
	}
	page := versionsPage{more: aws.ToBool(out.IsTruncated), key: out.NextKeyMarker, version: optional(aws.ToString(out.NextVersionIdMarker))}
	for _, v := range out.Versions {
		page.objects = append(page.objects, versionOf(v))
	}
	for _, m := range out.DeleteMarkers {
		page.objects = append(page.objects, Object{
			Key: aws.ToString(m.Key), VersionID: aws.ToString(m.VersionId), Latest: aws.ToBool(m.IsLatest),
			DeleteMarker: true, LastModified: aws.ToTime(m.LastModified)})
	}
	slices.SortStableFunc(page.objects, newestFirst)
	return page, nil
}

func versionOf(v types.ObjectVersion) Object {
	return Object{
		Key: aws.ToString(v.Key), VersionID: aws.ToString(v.VersionId), Latest: aws.ToBool(v.IsLatest),
		Size: aws.ToInt64(v.Size), LastModified: aws.ToTime(v.LastModified)}
}

// newestFirst merges versions and delete markers, which S3 lists apart. Times
// have whole seconds only, so the latest is also known by its mark.
func newestFirst(a, b Object) int {
	latest := func(o Object) int {
		if o.Latest {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(latest(a), latest(b)), b.LastModified.Compare(a.LastModified))
}

// firstVersion is the oldest version of exactly this key. ErrNotFound.
func (s *Store) firstVersion(ctx context.Context, key string) (Object, error) {
	var first Object
	for o, err := range s.versions(ctx, key, 100) {
		if err != nil {
			return Object{}, err
		}
		if o.Key != key { // a longer key: they follow
			break
		}
		if !o.DeleteMarker {
			first = o
		}
	}
	if first.VersionID == "" {
		return Object{}, fmt.Errorf("%w: bucket %s, key %s", ErrNotFound, s.bucket, key)
	}
	return first, nil
}
