// Package audit keeps the append-only, hash-chained record of who did what.
//
// An Entry is appended in the transaction of the action that it records, so
// that there is no action without its record and no record of an action that
// did not happen. Appending takes no lock that another appender waits for: the
// chain is made afterwards, by Link, one process at a time. A record that is
// not linked yet has position 0; Link gives every committed record the next
// position and a hash over the hash before it and all of its columns.
//
// Guaranteed: positions have no gaps; a record once linked keeps its position
// and hash; Verify, given a head that was kept elsewhere (a snapshot's
// manifest), finds any record that was changed, removed, added or put in
// another order since. Not guaranteed: that positions follow ids. A
// transaction that commits late is linked late.
//
// The tables refuse update, delete and truncate by trigger. Whoever owns the
// database can lift a trigger; the chain is what shows it.
//
// After a crash nothing needs repair: the next Link continues at the head.
package audit
