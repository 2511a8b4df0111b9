package objectstore

import (
	"context"
	"iter"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Client gives tests what the package does not offer: attempts to break a lock.
func (s *Store) Client() *s3.Client { return s.client }

// VersionsInPages is Versions with a page size.
func (s *Store) VersionsInPages(ctx context.Context, prefix string, size int32) iter.Seq2[Object, error] {
	return s.versions(ctx, prefix, size)
}
