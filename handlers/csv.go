package handlers

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sluis/views/i18n"
	"sluis/web"
)

// utf8BOM makes spreadsheets read the file as UTF-8.
const utf8BOM = "\ufeff"

// sheet writes one CSV download: UTF-8 with a byte order mark, fields separated
// by semicolons as Dutch spreadsheets expect, and no cell that a spreadsheet
// would run as a formula. Rows are sent as they are written; nothing is held.
type sheet struct {
	c   *web.Context
	buf *bufio.Writer
	csv *csv.Writer
}

// startCSV answers with a download of that name (without extension) and writes
// the heads. Read the first page of rows before it: afterwards an error can no
// longer become an error page, and cuts the download short instead.
func startCSV(c *web.Context, name string, heads ...string) (*sheet, error) {
	h := c.Response().Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name+".csv"))
	h.Set("Cache-Control", "no-store")
	c.Response().WriteHeader(http.StatusOK)
	s := newSheet(c.Response())
	s.c = c
	return s, s.start(heads)
}

func newSheet(w io.Writer) *sheet {
	buf := bufio.NewWriter(w)
	s := &sheet{buf: buf, csv: csv.NewWriter(buf)}
	s.csv.Comma = ';'
	s.csv.UseCRLF = true
	return s
}

func (s *sheet) start(heads []string) error {
	if _, err := s.buf.WriteString(utf8BOM); err != nil {
		return fmt.Errorf("csv: %w", err)
	}
	return s.row(heads...)
}

// row writes one row.
func (s *sheet) row(cells ...string) error {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = formulaSafe(cell)
	}
	if err := s.csv.Write(safe); err != nil {
		return fmt.Errorf("csv: %w", err)
	}
	return nil
}

// flush sends what has been written so far.
func (s *sheet) flush() error {
	s.csv.Flush()
	if err := s.csv.Error(); err != nil {
		return fmt.Errorf("csv: %w", err)
	}
	if err := s.buf.Flush(); err != nil {
		return fmt.Errorf("csv: %w", err)
	}
	return nil
}

// time is an instant as a cell: absolute, with its offset.
func (s *sheet) time(t time.Time) string { return i18n.Time(s.c.Ctx(), t) }

// formulaSafe puts an apostrophe before a cell that a spreadsheet would read as
// a formula: one that starts with = + - @, a tab or a line break. A plain
// number keeps its sign.
func formulaSafe(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
		return cell
	}
	if isNumber(cell) {
		return cell
	}
	return "'" + cell
}

// isNumber reports whether cell is a sign, digits and at most one decimal mark.
func isNumber(cell string) bool {
	digits, marks := 0, 0
	for i, r := range cell {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r == '.' || r == ',':
			marks++
		case i == 0 && (r == '-' || r == '+'):
		default:
			return false
		}
	}
	return digits > 0 && marks <= 1
}
