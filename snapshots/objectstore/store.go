package objectstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	defaultRegion = "us-east-1"
	maxBody       = 1 << 30 // bytes; a snapshot is far smaller, an answer past it is a fault

	attempts    = 4
	maxBackoff  = 2 * time.Second
	callLimit   = 30 * time.Second // for calls without a body, retries included
	bodyLimit   = 5 * time.Minute  // for Put and Get, retries included
	headerLimit = 20 * time.Second // for the store's first answer
)

// Config says which bucket and how to reach it. It prints without its secret.
type Config struct {
	// Endpoint is the URL of a store other than AWS, addressed with the bucket in
	// the path; empty means AWS.
	Endpoint string
	// Bucket is required.
	Bucket string
	// Region is required for AWS; elsewhere it defaults to us-east-1.
	Region string
	// AccessKey and SecretKey both empty mean the SDK's usual chain: environment,
	// shared files, instance role.
	AccessKey, SecretKey string
}

// String leaves the secret out.
func (c Config) String() string {
	return fmt.Sprintf("bucket %s at %q, region %q, access key %q, secret key %s", c.Bucket, c.Endpoint, c.Region, c.AccessKey, c.mask())
}

// GoString leaves the secret out.
func (c Config) GoString() string { return "objectstore.Config{" + c.String() + "}" }

// LogValue leaves the secret out.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("endpoint", c.Endpoint), slog.String("bucket", c.Bucket),
		slog.String("region", c.Region), slog.String("access_key", c.AccessKey), slog.String("secret_key", c.mask()))
}

func (c Config) mask() string {
	if c.SecretKey == "" {
		return "unset"
	}
	return "set"
}

func (c Config) validate() error {
	var errs []error
	if c.Bucket == "" {
		errs = append(errs, errors.New("no bucket given: set SLUIS_S3_BUCKET"))
	}
	if c.Region == "" && c.Endpoint == "" {
		errs = append(errs, errors.New("no region given: set SLUIS_S3_REGION, or SLUIS_S3_ENDPOINT for a store other than AWS"))
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		errs = append(errs, errors.New("access key and secret key go together: give both or neither"))
	}
	return errors.Join(errs...)
}

// Store is one bucket. Its methods may be called from several goroutines.
type Store struct {
	client *s3.Client
	bucket string
	region string
	aws    bool
}

// Open prepares a client; it does not speak to the store yet. All that is wrong
// with the configuration is reported at once.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	options := []func(*config.LoadOptions) error{
		config.WithRegion(cfg.Region),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.ResponseHeaderTimeout = headerLimit
			t.MaxIdleConnsPerHost = 16
		})),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts = attempts
				o.MaxBackoff = maxBackoff
			})
		}),
	}
	if cfg.AccessKey != "" {
		options = append(options, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(cfg.AccessKey, cfg.SecretKey, "")))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	client := s3.NewFromConfig(loaded, func(o *s3.Options) {
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
			o.UsePathStyle = true
		}
	})
	return &Store{client: client, bucket: cfg.Bucket, region: cfg.Region, aws: cfg.Endpoint == ""}, nil
}

// Bucket is the bucket's name.
func (s *Store) Bucket() string { return s.bucket }

// EnsureBucket creates the bucket with versioning and Object Lock, or checks that
// the existing one has both and says which is missing: ErrUnfitBucket.
func (s *Store) EnsureBucket(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.bucket})
	switch code(err) {
	case "":
	case codeNotFound, codeNoSuchBucket:
		if err := s.createBucket(ctx); err != nil {
			return err
		}
	default:
		return s.explain(err, "look at the bucket")
	}
	return s.checkBucket(ctx)
}

func (s *Store) createBucket(ctx context.Context) error {
	in := &s3.CreateBucketInput{Bucket: &s.bucket, ObjectLockEnabledForBucket: aws.Bool(true)}
	if s.aws && s.region != defaultRegion {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(s.region)}
	}
	_, err := s.client.CreateBucket(ctx, in)
	if c := code(err); c == "" || c == codeBucketOwned { // another replica was faster
		return nil
	}
	return s.explain(err, "create the bucket")
}

func (s *Store) checkBucket(ctx context.Context) error {
	versioning, err := s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.bucket})
	if err != nil {
		return s.explain(err, "read the bucket's versioning")
	}
	var missing []error
	if versioning.Status != types.BucketVersioningStatusEnabled {
		missing = append(missing, errors.New("versioning is off"))
	}
	lock, err := s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.bucket})
	switch {
	case code(err) == codeNoLockConfig:
		missing = append(missing, errors.New("Object Lock is off"))
	case err != nil:
		return s.explain(err, "read the bucket's Object Lock configuration")
	case lock.ObjectLockConfiguration == nil || lock.ObjectLockConfiguration.ObjectLockEnabled != types.ObjectLockEnabledEnabled:
		missing = append(missing, errors.New("Object Lock is off"))
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: bucket %s: %w; create a new bucket with Object Lock enabled (that switches versioning on too) and set SLUIS_S3_BUCKET to it",
			ErrUnfitBucket, s.bucket, errors.Join(missing...))
	}
	return nil
}
