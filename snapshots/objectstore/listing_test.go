package objectstore_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"sluis/snapshots/objectstore"
)

func versions(t *testing.T, s *objectstore.Store, prefix string, page int32) []objectstore.Object {
	t.Helper()
	var got []objectstore.Object
	for o, err := range s.VersionsInPages(t.Context(), prefix, page) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, o)
	}
	return got
}

func TestVersionListingInPages(t *testing.T) {
	s, prefix := subject(t)
	var want []string
	for _, name := range []string{"a", "b", "c"} {
		key := prefix + name
		ids := []string{put(t, s, key, "1", lockTime).VersionID}
		for n := range 2 {
			out, err := s.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(s.Bucket()), Key: &key, Body: bytes.NewReader([]byte{byte(n)})})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, aws.ToString(out.VersionId))
		}
		if name == "b" {
			out, err := s.Client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(s.Bucket()), Key: &key})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, aws.ToString(out.VersionId))
		}
		slices.Reverse(ids)
		for _, id := range ids {
			want = append(want, name+" "+id)
		}
	}
	for _, page := range []int32{1, 2, 3, 4, 7, 1000} {
		var got []string
		for _, o := range versions(t, s, prefix, page) {
			got = append(got, o.Key[len(prefix):]+" "+o.VersionID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", page, diff)
		}
	}
	var current []string
	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		current = append(current, o.Key[len(prefix):])
	}
	if diff := cmp.Diff([]string{"a", "c"}, current); diff != "" {
		t.Errorf("current (-want +got):\n%s", diff)
	}
}
