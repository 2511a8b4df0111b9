package handlers

import (
	"strings"
	"testing"
)

func TestSheet(t *testing.T) {
	var out strings.Builder
	s := newSheet(&out)
	if err := s.start([]string{"id", "note"}); err != nil {
		t.Fatal(err)
	}
	rows := [][]string{
		{"Q-1", "plain"},
		{"Q-2", `=HYPERLINK("http://x")`},
		{"Q-3", "+31 6 1234"},
		{"Q-4", "-12,5"},
		{"Q-5", "@SUM(A1)"},
		{"Q-6", "\tcmd"},
		{"Q-7", "a;b"},
		{"Q-8", "-1-1"},
		{"Q-9", "Zoë"},
	}
	for _, r := range rows {
		if err := s.row(r...); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	want := "\ufeffid;note\r\nQ-1;plain\r\nQ-2;\"'=HYPERLINK(\"\"http://x\"\")\"\r\nQ-3;'+31 6 1234\r\n" +
		"Q-4;-12,5\r\nQ-5;'@SUM(A1)\r\nQ-6;'\tcmd\r\nQ-7;\"a;b\"\r\nQ-8;'-1-1\r\nQ-9;Zoë\r\n"
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
}
