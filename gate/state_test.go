package gate_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluis/gate"
	"sluis/migrations/testdb"
)

var states = []gate.State{
	gate.InFlight, gate.Committed, gate.StRefused, gate.Unknown, gate.Manual, gate.RolledBack,
}

var stateEvents = []gate.StateEvent{
	gate.EvApplied, gate.EvRefused, gate.EvUncertain, gate.EvFound, gate.EvAbsent,
	gate.EvNoLookUp, gate.EvReserve, gate.EvUndone, gate.EvSaysDone, gate.EvSaysAbsent,
}

// TestEveryStateTakesEveryEvent is the protocol once more, row by state and
// column by event in the order above; a dash is refused.
func TestEveryStateTakesEveryEvent(t *testing.T) {
	const no = gate.State("-")
	want := map[gate.State][10]gate.State{
		gate.InFlight:   {gate.Committed, gate.StRefused, gate.Unknown, gate.Committed, gate.StRefused, gate.Unknown, no, no, no, no},
		gate.Committed:  {no, no, no, no, no, no, no, gate.RolledBack, no, no},
		gate.StRefused:  {no, no, no, no, no, no, gate.InFlight, no, no, no},
		gate.Unknown:    {no, no, no, gate.Committed, gate.StRefused, gate.Manual, no, no, gate.Committed, gate.StRefused},
		gate.Manual:     {no, no, no, gate.Committed, no, no, no, no, gate.Committed, gate.StRefused},
		gate.RolledBack: {no, no, no, no, no, no, no, no, no, no},
	}
	for _, from := range states {
		for i, event := range stateEvents {
			to, err := from.Next(event)
			var illegal *gate.TransitionError
			switch {
			case want[from][i] == no:
				if !errors.As(err, &illegal) || illegal.From != from || illegal.Event != event || to != from {
					t.Errorf("%s takes %s: to %s, %v", from, event, to, err)
				}
			case err != nil || to != want[from][i]:
				t.Errorf("%s takes %s: to %s, %v, want %s", from, event, to, err, want[from][i])
			}
		}
	}
	if _, err := gate.State("sent").Next(gate.EvApplied); err == nil {
		t.Error("a state that does not exist takes an event")
	}
	if _, err := gate.InFlight.Next("timeout"); err == nil {
		t.Error("an event that does not exist is taken")
	}
}

// TestNoTimerFreesAKey: only proof of absence, or a person, leads from an
// outcome that is not known to a state that may be sent again.
func TestNoTimerFreesAKey(t *testing.T) {
	for _, from := range []gate.State{gate.InFlight, gate.Unknown, gate.Manual} {
		for _, event := range []gate.StateEvent{gate.EvNoLookUp, gate.EvUncertain, gate.EvReserve} {
			if to, err := from.Next(event); err == nil && to != gate.Unknown && to != gate.Manual {
				t.Errorf("%s on %s leads to %s", from, event, to)
			}
		}
	}
}

func TestTheReservationsTableKnowsTheSameStates(t *testing.T) {
	pool := testdb.Pool(t)
	settled := map[gate.State]bool{gate.Committed: true, gate.StRefused: true, gate.RolledBack: true}
	// The triggers of foreign keys are off, so that a row stands alone; CHECK
	// constraints hold regardless.
	accepts := func(state gate.State, at, by bool) bool {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(t.Context(), "set local session_replication_role = replica"); err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), `
			insert into reservations (key, integration, natural_key, mutation_id, state, attempt, fence, reserved_at, settled_at, settled_by)
			values (sha256('k'), 'care', sha256('n'), 1, $1, 1, 1, '2025-10-26Z',
			  case when $2 then timestamptz '2025-10-26Z' end, case when $3 then 'gate' end)`,
			string(state), at, by)
		var refused *pgconn.PgError
		if err != nil && (!errors.As(err, &refused) || refused.Code != "23514") {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, state := range append(slices.Clone(states), "sent", "") {
		known := slices.Contains(states, state)
		for _, at := range []bool{false, true} {
			for _, by := range []bool{false, true} {
				want := known && at == by && at == settled[state]
				if got := accepts(state, at, by); got != want {
					t.Errorf("the table accepts %q with settled_at %t and settled_by %t: %t, want %t", state, at, by, got, want)
				}
			}
		}
	}
}
