package gate_test

import (
	"context"
	"time"

	"sluis/gate"
	"sluis/gate/gatetest"
)

// scripted is a target whose answers the test writes.
type scripted struct {
	gate.Target
	apply  func(gate.Send) gate.Outcome
	lookUp func(gate.Key) gate.LookUp
}

func (s *scripted) Apply(_ context.Context, send gate.Send) gate.Outcome { return s.apply(send) }

func (s *scripted) LookUp(_ context.Context, key gate.Key, _ time.Time) gate.LookUp {
	return s.lookUp(key)
}

// sends puts the target in the place of the world's own.
func (s *scripted) sends(c *gate.Config) { c.Targets = map[string]gate.Target{gatetest.Care: s} }

// update is a request that changes fields of a visit.
func update(w *gatetest.World, event, id, body string) gate.Request {
	req := w.Visit(event, "", "run-1")
	req.Mutation = gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: id, Subject: "C-1", Body: []byte(body)}
	return req
}
