package views

import (
	"net/url"
	"slices"
)

// Param is one parameter of a URL or one hidden field of a form.
type Param struct{ Name, Value string }

// params lists q sorted by name, without the names in except.
func params(q url.Values, except ...string) []Param {
	names := make([]string, 0, len(q))
	for name := range q {
		if !slices.Contains(except, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var list []Param
	for _, name := range names {
		for _, v := range q[name] {
			list = append(list, Param{Name: name, Value: v})
		}
	}
	return list
}
