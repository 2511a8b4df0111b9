package s3server

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// Copies and multipart uploads publish an object before its lock and are not
// needed here: what is not offered cannot break a promise.

// CopyObject is not offered.
func (s *lockedStore) CopyObject(context.Context, s3response.CopyObjectInput) (s3response.CopyObjectOutput, error) {
	return s3response.CopyObjectOutput{}, s3err.GetAPIError(s3err.ErrNotImplemented)
}

// CreateMultipartUpload is not offered.
func (s *lockedStore) CreateMultipartUpload(context.Context, s3response.CreateMultipartUploadInput) (s3response.InitiateMultipartUploadResult, error) {
	return s3response.InitiateMultipartUploadResult{}, s3err.GetAPIError(s3err.ErrNotImplemented)
}

// UploadPart is not offered.
func (s *lockedStore) UploadPart(context.Context, *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	return nil, s3err.GetAPIError(s3err.ErrNotImplemented)
}

// UploadPartCopy is not offered.
func (s *lockedStore) UploadPartCopy(context.Context, *s3.UploadPartCopyInput) (s3response.CopyPartResult, error) {
	return s3response.CopyPartResult{}, s3err.GetAPIError(s3err.ErrNotImplemented)
}

// CompleteMultipartUpload is not offered.
func (s *lockedStore) CompleteMultipartUpload(context.Context, *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	return s3response.CompleteMultipartUploadResult{}, "", s3err.GetAPIError(s3err.ErrNotImplemented)
}
