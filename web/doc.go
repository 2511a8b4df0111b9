// Package web is the HTTP platform of Sluis: two servers, one for operators
// (HTML, sessions, cookies) and one for agents and providers (JSON, bearer
// tokens, no cookies).
//
// A page is a Route: method, path, name, the roles that may use it and a
// handler that returns an error. NewOperators refuses a table in which a route
// names neither roles nor Public, so that forgetting is a start-up error and
// never an open door. One function, admit, decides for every request whether it
// may go on: signed in, role, and for anything but GET and HEAD the origin.
// Each refused action is handed to Config.Refused, which writes the audit
// record.
//
// Handlers return errors. One table turns them into pages: the cause is logged
// with the request id, the person sees a sentence and that id. Pages render
// into a buffer first, so that a failing page is an error page and never half
// a page with status 200.
//
// Sessions and users live in PostgreSQL and are the only parts of this package
// that import pgx. A session's token is stored hashed, ends after eight hours
// without use and after 24 hours in any case, is new after each sign-in, and
// can be revoked for a user.
//
// Live pages hold an event stream open. On each publication of a topic the
// whole fragment is rendered afresh; nothing depends on a message having been
// received. Streams end at shutdown, at sign-out and when their session ends.
package web
