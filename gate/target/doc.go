// Package target sends mutations to record systems over HTTP and says what is
// known of each send afterwards. It is the implementation of gate.Target.
//
// # What an outcome means
//
//	applied    a 2xx whose answer could be read
//	refused    no byte of the request was written (connection refused, no
//	           connection in time), or a status that the integration lists as definite
//	uncertain  everything else: timeout, reset, cut, 5xx, redirect, an answer that
//	           cannot be read, a status that is not listed, and "this key was used
//	           with another request", which after a retry says nothing of the effect
//
// Nothing is sent twice by this package. net/http on its own repeats a request
// that carries an Idempotency-Key when a kept-alive connection breaks; here
// every request has a body that cannot be rewound, which forbids it. The price:
// a connection that the other side closes in the moment of its use is an
// uncertain outcome, to be looked up.
//
// # What a target has to offer
//
//	POST /v1/{type}[/{id}], PATCH and DELETE /v1/{type}/{id}
//	                       with the key header, If-Match: "version" and X-Actor
//	GET /v1/{type}/{id}    one entity
//	GET /v1/live?after=&limit=   the live state by cursor
//	GET /v1/keys/{key}     the look-up
//
// as sluis/gate/sandbox documents them. A look-up proves absence only by a 404
// with "applied": false and a known_since (from when on the target's key
// memory is complete; where it does not say, its documented retention before
// its own Date) that lies a margin before the reservation. Any other answer
// proves nothing.
package target
