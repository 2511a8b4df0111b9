// Package trace is the care incident as data: a recorded trace that can be
// played through a gate at its own clock, with a simulated agent that acts on
// the record system it finds.
//
// # Format
//
// JSON lines, zstd-compressed. The first line is the meta step, the others
// follow in order of their real time "at" (RFC 3339, UTC):
//
//	{"step":"meta","at":…,"meta":{"name","integration","zone","from","to","board"}}
//	{"step":"seed","at":…,"seed":[{"type","id","version","updated_at","updated_by","state"}…]}
//	{"step":"roster","at":…,"roster":{"day","routes":[{"route","nurse","visits":[…]}…]}}
//	{"step":"deliver","at":…,"raw":"…","expect":{"disposition","reason"}}
//	{"step":"edit","at":…,"edit":{"type","match":{…},"set":{…},"by"}}
//	{"step":"clock","at":…,"wall_step_ms":3600000}
//	{"step":"note","at":…,"note":"…"}
//
// seed is what the record system holds at the start. roster is what the
// roster system would answer from then on when asked for a day. deliver is one
// arrival of a webhook, byte for byte as the provider sent it; expect, where
// given, is what a gate in enforce mode must make of it. edit is a change by
// hand in the record system, past the gate: the entity of that type with the
// lowest id whose fields equal match gets the fields of set. clock is a step
// of the machine's wall clock, which must change no decision.
//
// # The incident
//
// 24 nurses, 88 clients and an intake, from 2025-10-25T20:00Z to Wednesday
// 2025-10-29 06:40 +01:00 (incident 1). The seed is the published plan of 14
// days in which that Wednesday is not yet published. The other 13 days hold
// the 115 fixed appointments of a day rather than all of its visits: the
// figures are about Wednesday alone, and snapshots and plans over some 1,500
// visits keep a demonstration quick. The swap at 02:47 +02:00 publishes
// Wednesday: 312 visits, 13 for each nurse, eight clients before noon each.
// The provider delivers the same bytes again at 02:13 +01:00. On Monday come
// eighteen further events and a few that need no change.
//
// Neighbouring routes share four clients: the second half of one's morning is
// the first half of the next one's. On Monday swap the second
// half of their mornings. On a sound board both keep eight visits, and the
// nurse of R-07 eight clients. On a doubled board the agent moves one copy of
// each and leaves the other where it was, so that the nurse of R-07 has her
// own eight and four more.
//
// No two legitimate mutations are equal, so the equal ones are exactly the
// 312 pairs; of each pair later mutations touch one copy at most.
//
// # Playing
//
// The caller puts [Trace.Seed] into an empty record system and has the gate
// adopt it, then calls [Play].
package trace
