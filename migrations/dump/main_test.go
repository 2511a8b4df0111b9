package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNormalise(t *testing.T) {
	in := `--
-- PostgreSQL database dump
--

\restrict abc

-- Dumped from database version 15.14

SET statement_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);

--
-- Name: a; Type: TABLE
--

CREATE TABLE public.a (
    v integer  
);


CREATE INDEX i ON public.a USING btree (v);

\unrestrict abc
`
	want := `-- Made from the numbered files by: go run ./migrations/dump -write

CREATE TABLE public.a (
    v integer
);

CREATE INDEX i ON public.a USING btree (v);
`
	if diff := cmp.Diff(want, string(normalise([]byte(in)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompareNamesTheFirstLine(t *testing.T) {
	if err := compare("f", []byte("a\nb\n"), []byte("a\nb\n")); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, now, want string }{
		{"a\nb\n", "a\nc\n", `f:2 says "b" where the migrations make "c"`},
		{"a\n", "a\nb\n", `f:2 says "" where the migrations make "b"`},
	} {
		err := compare("f", []byte(c.old), []byte(c.now))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
