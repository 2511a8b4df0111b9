// Package snapshots keeps sealed copies of what the agents of an integration
// have done to the world, and undoes a bad night from them.
//
// Nouns. A world is the projection of one integration at one moment: every
// entity that is not deleted, one line of canonical JSON each. A snapshot is a
// world with its position. Its body is the object with the lines; its manifest
// is a small signed object that names the body and the manifest before it. The
// manifests of an integration are its chain, numbered from 1; the last one is
// the head, which the database records too, outside the store.
//
// A position is two things, because mutations settle in another order than
// they are numbered in: the highest mutation whose effect is inside, and those
// below it whose effect is not, since they were on their way. A replay from the
// snapshot needs both.
//
// Guaranteed:
//
//   - A world is one consistent read; the gate is not held up by it.
//   - Body and manifest are put only where their key is free, and are locked in
//     COMPLIANCE mode for the retention by real time, as read back from the
//     store. Nobody can change or remove them before, we included.
//   - The chain has no gap and no fork, whatever stops when, and however many
//     leaders there are: the store's put-if-absent of the manifest decides.
//   - A row of the table and its audit record commit together, after the
//     manifest is in the store. A manifest without a row is adopted by the next
//     Take or VerifyChain.
//   - What World returns is what was sealed, checked down to the bytes, even
//     where something was put over it since.
//   - VerifyOffline tells with the public key alone, from a bucket or a folder:
//     chain whole, signatures good, bodies intact, locks in force, tail present;
//     the last only against a head that was noted elsewhere.
//
// Not guaranteed: that the projection equals the record system (a plan reads
// the live state for that); that an operator of the store's disks cannot reach
// around its locks; that a holder of the signing key cannot sign another chain,
// which only the recorded head shows.
//
// After a crash an operator sees nothing special: at most one orphaned body,
// locked and used again, and one manifest that the next snapshot records. Where
// the store no longer holds what was sealed, the signal says broken and a
// person has to look; snapshots go on, since the head is known from the table.
// Only a manifest in the next one's place that is not ours stops them.
//
// # Rollbacks
//
// Nouns. The suspects are committed mutations that should not have been. Base
// is the snapshot with everything committed since: what we believe. Expected is
// the same without the suspects: what should be. Live is what the target has.
// A plan compares the three, entity by entity and field by field. Its rows are
// compensations (live is base: undo it), decisions (somebody changed it since:
// kept unless a person says restore), changes outside the gate (shown, kept)
// and residue (cannot be undone, in words).
//
// States, in rollback_state.go: planning, then ready (or failed), then approved
// by a person (or expired, or cancelled), then applying, stopped where a row
// was refused, and applied.
//
// Guaranteed:
//
//   - An approval is bound to a hash over the plan's meaning and counts once. It
//     is refused where a row has moved since the dry run, with the row's name.
//   - What was approved is what is sent, under the version that was seen, at most
//     once, by the gate's own path, also after a kill at any point.
//   - A row that says applied has closed the keys of what it undid, in the same
//     transaction: a redelivery is held. So has an applied rollback for suspects
//     of which nothing was left. What was kept, skipped or is residue keeps its key.
//   - Nothing else is touched: neither later legitimate changes, nor hand edits.
//
// Not guaranteed: that the target is idle meanwhile (a row that moves after the
// approval is refused and stops the rollback).
//
// After a crash an operator sees the rollback in planning or applying, and
// within 15 seconds another process goes on with it; a row that says sending is
// asked of the gate again, which looks it up and never sends it twice.
package snapshots
