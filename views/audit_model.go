package views

import "time"

// AuditPage lists the audit record, newest first.
type AuditPage struct {
	Page
	Filter Filter
	Rows   []AuditRow
	Empty  Empty
	Pager  Pager
	Chain  ChainLine
}

// AuditRow is one record.
type AuditRow struct {
	RowID  string
	Href   string
	At     time.Time
	Actor  string
	Action string // "mutation.dropped", as it is recorded
	Text   string // the action in words
	Object string
	// ObjectHref leads to what it is about, "" when there is no page.
	ObjectHref string
	Pos        string // position in the chain, "" while it is not linked
	Hash       string // short
	Note       string
}

// ChainLine says how far the chain was verified.
type ChainLine struct {
	Head    string // position of the head
	Hash    string // short
	Unknown bool   // the head cannot be read
	Action  string
	Hidden  []Param
	Result  string // of a verification that was just made
	Broken  bool
}

// AuditRecordPage is one record.
type AuditRecordPage struct {
	Page
	Crumbs []Crumb
	Row    AuditRow
	Hash   string // whole
	Detail string
	Facts  []Fact
}
