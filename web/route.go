package web

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Route is one operation of the console.
type Route struct {
	Method  string
	Path    string // with :parameters
	Name    string // unique, for logs, audit records and tests
	Allow   []Role // who may use it; empty only with Public
	Public  bool   // usable without signing in
	Handler func(c *Context) error
	Stream  bool // an event stream: no deadline, no page in the answer
}

// AgentRoute is one operation of the API for agents and providers.
type AgentRoute struct {
	Method string
	Path   string
	Name   string
	// Public means that no bearer token is asked for: the handler
	// authenticates by itself (a provider's signature), or everyone may know
	// (the API description).
	Public  bool
	Handler func(c *AgentContext) error
}

// checkRoutes reports every fault of the table at once.
func checkRoutes(routes []Route) error {
	var errs []error
	names, places := map[string]bool{}, map[string]bool{}
	for _, r := range routes {
		errs = append(errs, checkPlace(r.Method, r.Path, r.Name, r.Handler != nil, names, places)...)
		switch {
		case r.Public && len(r.Allow) > 0:
			errs = append(errs, fmt.Errorf("route %s: both public and limited to roles", r.Name))
		case !r.Public && len(r.Allow) == 0:
			errs = append(errs, fmt.Errorf("route %s: neither roles nor public", r.Name))
		}
		for _, role := range r.Allow {
			if !role.Valid() {
				errs = append(errs, fmt.Errorf("route %s: unknown role %q", r.Name, role))
			}
		}
		if r.Stream && r.Method != http.MethodGet {
			errs = append(errs, fmt.Errorf("route %s: a stream must be GET", r.Name))
		}
	}
	return errors.Join(errs...)
}

func checkAgentRoutes(routes []AgentRoute) error {
	var errs []error
	names, places := map[string]bool{}, map[string]bool{}
	for _, r := range routes {
		errs = append(errs, checkPlace(r.Method, r.Path, r.Name, r.Handler != nil, names, places)...)
	}
	return errors.Join(errs...)
}

func checkPlace(method, path, name string, handler bool, names, places map[string]bool) []error {
	var errs []error
	place := method + " " + path
	if name == "" {
		errs = append(errs, fmt.Errorf("route %s: no name", place))
	}
	if names[name] {
		errs = append(errs, fmt.Errorf("route %s: name used twice", name))
	}
	if places[place] {
		errs = append(errs, fmt.Errorf("route %s: %s used twice", name, place))
	}
	names[name], places[place] = true, true
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		errs = append(errs, fmt.Errorf("route %s: method %q", name, method))
	}
	if !strings.HasPrefix(path, "/") {
		errs = append(errs, fmt.Errorf("route %s: path %q", name, path))
	}
	if !handler {
		errs = append(errs, fmt.Errorf("route %s: no handler", name))
	}
	return errs
}
