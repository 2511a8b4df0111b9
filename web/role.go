package web

import "slices"

// Role is what a person may do. Roles do not include each other: a route lists
// each role that it admits.
type Role string

// The roles, from least to most.
const (
	Viewer  Role = "viewer"
	OnCall  Role = "oncall"
	Planner Role = "planner"
	Admin   Role = "admin"
)

// Roles lists all roles.
var Roles = []Role{Viewer, OnCall, Planner, Admin}

// The sets that routes use.
var (
	Everyone = []Role{Viewer, OnCall, Planner, Admin} // reading
	Deciders = []Role{OnCall, Planner, Admin}         // release, reject, settle
	Planners = []Role{Planner, Admin}                 // approve rollbacks
	Admins   = []Role{Admin}                          // users
)

// Valid reports whether r is one of Roles.
func (r Role) Valid() bool { return slices.Contains(Roles, r) }

// User is a named person who signs in.
type User struct {
	ID       int64
	Name     string // lower case, unique
	Display  string
	Role     Role
	Lang     string // "en", "nl" or "" for the browser's
	Theme    string // "light", "dark" or "" for the system's
	Keys     bool   // single keys move through lists
	Disabled bool
}
