package snapshots

import "fmt"

// rollbackEvent is what happens to a rollback.
type rollbackEvent string

// The events that move a rollback.
const (
	evPlanned    rollbackEvent = "planned"     // the dry run is done
	evPlanFailed rollbackEvent = "plan_failed" // the dry run could not be done
	evChoose     rollbackEvent = "choose"      // a person chose for a row
	evApprove    rollbackEvent = "approve"     // a person approved what they saw
	evMoved      rollbackEvent = "moved"       // rows moved between plan and approval
	evExpire     rollbackEvent = "expire"      // nobody approved it in time
	evCancel     rollbackEvent = "cancel"      // a person withdrew it
	evStart      rollbackEvent = "start"       // an applier took it up
	evStop       rollbackEvent = "stop"        // a row failed
	evResume     rollbackEvent = "resume"      // a person lets it go on
	evFinish     rollbackEvent = "finish"      // every row is done and read back
)

// rollbackMoves is the only place that names a rollback's next state. The
// CHECK constraints of table rollbacks refuse what it does not produce:
// nothing is approved without a hash, nor applied without an approval.
var rollbackMoves = map[RollbackState]map[rollbackEvent]RollbackState{
	RollbackPlanning: {
		evPlanned: RollbackReady, evPlanFailed: RollbackFailed, evCancel: RollbackCancelled,
	},
	RollbackReady: {
		evChoose: RollbackReady, evApprove: RollbackApproved, evMoved: RollbackCancelled,
		evExpire: RollbackExpired, evCancel: RollbackCancelled,
	},
	RollbackApproved: {evStart: RollbackApplying, evCancel: RollbackCancelled},
	RollbackApplying: {evStop: RollbackStopped, evFinish: RollbackApplied},
	RollbackStopped:  {evResume: RollbackApplying, evCancel: RollbackCancelled},
}

// rollbackMoveError reports an event that a state does not take.
type rollbackMoveError struct {
	From  RollbackState
	Event rollbackEvent
}

func (e *rollbackMoveError) Error() string {
	return fmt.Sprintf("a rollback that is %s does not take %q", e.From, e.Event)
}

// next names the state after ev, or a *rollbackMoveError. Terminal for every
// event: applied, failed, expired and cancelled.
func (s RollbackState) next(ev rollbackEvent) (RollbackState, error) {
	if to, ok := rollbackMoves[s][ev]; ok {
		return to, nil
	}
	return s, &rollbackMoveError{s, ev}
}
