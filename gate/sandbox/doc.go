// Package sandbox is a simulated record system: a real HTTP server with the
// failings that real ones have, for the demo and the tests.
//
// # What it keeps
//
// Entities (a type, an id, a version, a JSON object), the memory of
// idempotency keys with the answer that each got, and for the tests the count
// of applications of each key. Everything lives in one append-only journal
// file of JSON lines. A change, its key and its answer are one line, written
// by one write(2) before the answer goes out, so that a kill -9 of the process
// leaves both or neither; a torn last line is dropped at open. The journal is
// not synced: it survives the death of the process, not of the machine.
// One process at a time may have it open.
//
// # HTTP
//
//	POST   /v1/{type}          create; the system assigns the id (visit: V-000123); 201
//	POST   /v1/{type}/{id}     create under a given id; 409 when it exists; 201
//	PATCH  /v1/{type}/{id}     RFC 7396 merge patch; 200
//	DELETE /v1/{type}/{id}     200
//	GET    /v1/{type}/{id}     200 or 404
//	GET    /v1/live?after=&limit=   {"entities":[…],"next":"…"} in (type, id) order; next is "" at the end
//	GET    /v1/keys/{key}      200 {"applied":true,"ref","version","entity"} or
//	                           404 {"applied":false,"known_since"}
//	GET    /v1/health          {"status","entities","keys","known_since","double_applied":[…]}
//	POST   /v1/faults          replaces the list of faults: [Fault…]
//	DELETE /v1/faults          clears it
//
// A body is a JSON object of at most 1 MiB; an answer to a change and to GET is
//
//	{"type","id","version","updated_at","updated_by","state":{…}}
//
// and for a delete the last state with "deleted":true. Every answer carries a
// Date by the system's own clock. With a token set, every request needs
// "Authorization: Bearer …". X-Actor says who makes the change and is kept as
// updated_by. Errors are RFC 9457 problem documents.
//
// Idempotency-Key (an RFC 8941 string or bare, at most 255 characters) makes a
// change safe to send again: the same key with the same method, path and body
// gets the first answer once more, with Idempotent-Replayed: true; with
// another request it gets 422 with the problem type [ProblemKeyReused]. Only
// applied changes are remembered: a refusal may be sent again under its key.
// A change without a key is a hand edit. If-Match: "version" answers 412 when
// the entity has moved.
//
// known_since is the instant from which the key memory is complete: no key
// applied at or after it has been forgotten. A system that never forgot one
// says 1970-01-01T00:00:00Z.
//
// # Faults
//
// See [Fault]. They apply to changes unless their match names another
// operation. The system complains: a key that is applied a second time is
// kept in [System.DoubleApplied] for good, even when the key memory forgot it.
package sandbox
