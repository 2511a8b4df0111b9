package views

// Filter is the bar above a list. Its form is sent with GET, so that the filter
// lives in the URL.
type Filter struct {
	Action string  // path of the list
	Hidden []Param // what goes along unchanged, such as the integration
	Fields []FilterField
	Active bool   // something is filtered
	Reset  string // URL without the filter
}

// FilterField is one field of a Filter: a choice when it has Options, else a
// text.
type FilterField struct {
	Name    string
	Label   string
	Value   string
	Hint    string
	Search  bool // the field that / jumps to
	Options []Option
}

// Option is one choice of a FilterField.
type Option struct {
	Value    string
	Label    string
	Selected bool
}

// Pager leads through a list that is read page by page from the newest on.
type Pager struct {
	Shown int
	Total int64  // 0 when it is not counted
	First string // URL of the first page, "" when this is it
	Next  string // URL of the next page, "" when this is the last
	CSV   string // URL of the whole filtered list as CSV
}

// Empty says why a list has no rows. Three different texts: there is nothing,
// the filter finds nothing, or it could not be read.
type Empty struct {
	Text      string
	Href      string // "" for none
	LinkText  string
	RequestID string // set when it could not be read
}

// Crumb is one step of the way to a page.
type Crumb struct{ Text, Href string }
