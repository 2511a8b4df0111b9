package objectstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/smithy-go"
)

var (
	// ErrExists means that the key is taken by another writer's object.
	ErrExists = errors.New("key exists already")
	// ErrNotFound means that there is no such key or version.
	ErrNotFound = errors.New("no such object")
	// ErrLocked means that the store refused because the version is locked.
	ErrLocked = errors.New("object version is locked")
	// ErrNotLocked means that the store took the object but does not hold the lock that was asked for.
	ErrNotLocked = errors.New("object version is not locked as asked")
	// ErrUnfitBucket means that the bucket lacks versioning or Object Lock.
	ErrUnfitBucket = errors.New("bucket cannot hold snapshots")
)

// S3's error codes.
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
const (
	codeNotFound       = "NotFound" // of HEAD requests, which have no body to name the code
	codeNoSuchBucket   = "NoSuchBucket"
	codeNoSuchKey      = "NoSuchKey"
	codeNoSuchVersion  = "NoSuchVersion"
	codeInvalidVersion = "InvalidArgument" // a version id that the store did not make
	codeBucketOwned    = "BucketAlreadyOwnedByYou"
	codeNoLockConfig   = "ObjectLockConfigurationNotFoundError"
	codeNoLock         = "NoSuchObjectLockConfiguration"
	codePrecondition   = "PreconditionFailed"
	codeConflict       = "ConditionalRequestConflict"
	codeAccessDenied   = "AccessDenied"
	codeForbidden      = "Forbidden"
	codeNoAccessKey    = "InvalidAccessKeyId"
	codeSignature      = "SignatureDoesNotMatch"
	codeClockSkew      = "RequestTimeTooSkewed"
	codeOtherRegion    = "PermanentRedirect"
)

// code is S3's code of an error, "" for nil, "?" where the store did not answer.
func code(err error) string {
	if err == nil {
		return ""
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return "?"
}

// advice says what an operator can do about an error code.
var advice = map[string]string{
	codeAccessDenied:  "allow the access key to do this in the bucket's policy",
	codeForbidden:     "allow the access key to do this in the bucket's policy",
	codeNoAccessKey:   "check the access key",
	codeSignature:     "check the secret key",
	codeClockSkew:     "set this machine's clock: it differs from the store's by more than 15 minutes",
	codeOtherRegion:   "set SLUIS_S3_REGION to the bucket's region",
	codeNoSuchBucket:  "create the bucket or set SLUIS_S3_BUCKET to an existing one",
	codePrecondition:  "choose another key: this one is taken",
	codeNoSuchKey:     "check the key: the store has no such object",
	codeNoSuchVersion: "check the version id: the store has no such version",
}

// explain adds what was attempted where, and what to do.
func (s *Store) explain(err error, attempted string) error {
	if err == nil {
		return nil
	}
	c := code(err)
	hint, ok := advice[c]
	switch {
	case ok:
	case c == "?" && errors.Is(err, context.Canceled):
		hint = "it was cancelled"
	case c == "?":
		hint = "check that the store runs and can be reached, then try again"
	default:
		hint = "see the store's log"
	}
	return fmt.Errorf("object store, bucket %s: %s: %w (%s)", s.bucket, attempted, err, hint)
}

func notFound(err error) bool {
	switch code(err) {
	case codeNotFound, codeNoSuchKey, codeNoSuchVersion, codeInvalidVersion:
		return true
	}
	return false
}

// lookUpError is explain for calls that name an object.
func (s *Store) lookUpError(err error, attempted, key, versionID string) error {
	what := attempted + " " + key
	if versionID != "" {
		what += " version " + versionID
	}
	if notFound(err) {
		return fmt.Errorf("%w: bucket %s: %s: %w", ErrNotFound, s.bucket, what, err)
	}
	return s.explain(err, what)
}
