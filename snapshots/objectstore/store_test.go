package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server/s3test"
)

func TestConfigKeepsItsSecret(t *testing.T) {
	cfg := objectstore.Config{Endpoint: "http://127.0.0.1:1", Bucket: "b", AccessKey: "access", SecretKey: "hush"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("config", "config", cfg)
	for _, text := range []string{cfg.String(), fmt.Sprintf("%v", cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), log.String()} {
		if strings.Contains(text, "hush") || !strings.Contains(text, "access") {
			t.Errorf("printed as %s", text)
		}
	}
}

func TestOpenReportsEveryFault(t *testing.T) {
	_, err := objectstore.Open(t.Context(), objectstore.Config{AccessKey: "a"})
	for _, want := range []string{"no bucket", "no region", "go together"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestEnsureBucketSaysWhatIsMissing(t *testing.T) {
	cfg := s3test.Config(t)
	s, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	bucket := aws.String(s.Bucket())
	if _, err := s.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	err = s.EnsureBucket(t.Context())
	if !errors.Is(err, objectstore.ErrUnfitBucket) || !strings.Contains(err.Error(), "versioning is off") || !strings.Contains(err.Error(), "Object Lock is off") {
		t.Errorf("plain bucket: %v", err)
	}
	_, err = s.Client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	if err != nil {
		t.Fatal(err)
	}
	err = s.EnsureBucket(t.Context())
	if !errors.Is(err, objectstore.ErrUnfitBucket) || strings.Contains(err.Error(), "versioning is off") || !strings.Contains(err.Error(), "Object Lock is off") {
		t.Errorf("versioned bucket: %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	wrong := s3test.Config(t)
	wrong.SecretKey += "x"
	none := s3test.Config(t)
	none.Endpoint = "http://127.0.0.1:1"
	for _, c := range []struct {
		name string
		cfg  objectstore.Config
		want string
	}{
		{"wrong secret", wrong, "check the secret key"},
		{"no bucket", s3test.Config(t), "SLUIS_S3_BUCKET"},
		{"no server", none, "check that the store runs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := objectstore.Open(t.Context(), c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Put(t.Context(), "k", []byte("x"), time.Now().Add(time.Minute))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.cfg.SecretKey) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
}

// TestLostAnswerIsRecognised cuts the connection after the store has written: the
// repeated request meets its own object and must not take it for another's.
func TestLostAnswerIsRecognised(t *testing.T) {
	cfg := s3test.Config(t)
	direct, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := direct.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	var puts atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && puts.Add(1) == 1 {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	cfg.Endpoint = front.URL
	s, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Put(t.Context(), "k", []byte("x"), time.Now().Add(lockTime))
	if err != nil {
		t.Fatal(err)
	}
	if puts.Load() != 2 {
		t.Errorf("%d writes reached the store, want 2", puts.Load())
	}
	head, err := direct.Head(t.Context(), "k")
	if err != nil || head != r {
		t.Errorf("receipt %+v, store has %+v, %v", r, head, err)
	}
	if _, err := s.Put(t.Context(), "k", []byte("x"), time.Now().Add(lockTime)); !errors.Is(err, objectstore.ErrExists) {
		t.Errorf("another write of the same body: %v", err)
	}
}

func TestCancelledCallEnds(t *testing.T) {
	s := s3test.Store(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "k", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
