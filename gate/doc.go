// Package gate admits each intended mutation once, holds what does not add up,
// reserves before it sends, settles in one transaction and looks up what is
// uncertain.
//
// # Nouns
//
// An integration is one agent path from a source to a target. An event is what
// the provider says happened; a delivery is one arrival of it. A mutation is
// what the agent wants to change; an effect names one mutation within an
// event. The idempotency key is a function of integration, account, event id
// and effect, and of nothing else: never of the run, the attempt or the time
// (incident 3). A reservation is the durable row that says we are about to act
// under a key. A quarantine item is a mutation or delivery that waits for a
// person. The projection is our record of each entity. A tombstone is a key
// that a rollback closed.
//
// # Reservation states, and who moves them
//
//	            reserve (Submit, FinishRelease, Compensate)
//	                 │
//	                 ▼
//	┌─────────── in_flight ───────────┐
//	│ applied, found   refused, absent│   the sender settles; after StaleAfter
//	│          uncertain, no look-up  │   reconciliation takes over (new fence)
//	▼                ▼                ▼
//	committed     unknown          refused ──reserve──▶ in_flight (attempt+1)
//	│             │  │  └─absent────▲
//	│ undone      │  └─forgotten─▶ manual ── a person says, with evidence ──▶ committed | refused
//	▼             └─found──▶ committed
//	rolled_back (tombstone)
//
// State.Next is the only function that names a next state; the CHECK
// constraints of the table refuse what it never produces. Uncertainty ends by a
// look-up or by a person. No timer frees a key.
//
// # What is guaranteed
//
//   - In mode enforce a key is sent at most once, unless a look-up proved that
//     the target did not apply it or the target definitely refused it.
//   - Nothing is sent without its committed row, and no row is written without
//     its audit record in the same transaction.
//   - No connection and no transaction is held while the target works.
//   - A worker whose row was taken over settles nothing: the fence is part of
//     every compare-and-set.
//   - A delivery is acknowledged after its transaction has committed. When the
//     store is down everything answers ErrUnavailable and nothing is forwarded.
//   - What a rollback closed, and what comes while an integration is frozen, is
//     held in every mode. Of an event that a rollback closed, new effects are
//     held and known ones are not sent again, in every mode.
//   - Our record of an entity ends as if its mutations had been settled in the
//     order of their numbers, whenever their outcomes came to be known.
//
// # What is not
//
//   - That the effect happens exactly once where the target does not honour the
//     key: there the state says unknown, and a person decides.
//   - That an error means "not stored": the caller looks the key up.
//   - Modes off and shadow forward what enforce would drop or hold. Such a
//     mutation passes through under a key of its own, so that the target
//     applies it as it would without a gate.
//
// # After a crash
//
// Rows that were reserved stay in_flight; the dashboard counts them as stale
// after StaleAfter and raises an alarm after AlertAfter. Reconciliation looks
// each up under its key within a period and closes it. A release that was due
// is taken up by the next sweep.
package gate
