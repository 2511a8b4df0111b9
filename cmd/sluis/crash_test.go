package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluis/gate"
)

// mutation is an agent's request for one new visit, occurring now.
func mutation(event string) map[string]any {
	return map[string]any{
		"event": map[string]any{"account": "home", "event_id": event, "occurred_at": time.Now().Format(time.RFC3339)},
		"agent": "planning-agent", "run": "run-" + event,
		"mutation": map[string]any{
			"op": "create", "type": "visit", "subject": "C-900",
			"body": map[string]any{"client": "C-900", "nurse": "N-01", "day": "2026-12-24", "note": event},
		},
	}
}

const mutationsPath = "/v1/integrations/care/mutations"

// count is how many visits carry the note.
func (p *process) count(note string) int {
	n := 0
	for _, state := range p.live() {
		if state["note"] == note {
			n++
		}
	}
	return n
}

// faults sets the record system's faults.
func (p *process) faults(list ...map[string]any) {
	p.t.Helper()
	if list == nil {
		list = []map[string]any{}
	}
	p.records(http.MethodPost, "/v1/faults", list)
}

// checkNothingDoubled asks the record system whether it applied a key twice.
func (p *process) checkNothingDoubled() {
	p.t.Helper()
	health := p.records(http.MethodGet, "/v1/health", nil)
	if twice, _ := health["double_applied"].([]any); len(twice) > 0 {
		p.t.Errorf("applied twice: %v", twice)
	}
}

// verify runs 'sluis verify' on the data and returns what it printed.
func verify(t *testing.T, data string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := command(ctx, "verify", "--data", data).CombinedOutput()
	return string(out), err
}

// TestKillAtEveryPoint kills one installation again and again, at each of the
// points where a crash could double or lose something, and goes on with the
// same data.
func TestKillAtEveryPoint(t *testing.T) {
	data := dataRoot(t)
	p := startDemo(t, data)
	if got := p.wednesday(); got != 624 {
		t.Fatalf("the demo's board holds %d visits, want 624", got)
	}
	p = killMidRollback(t, p)
	signIn(t, p).setMode(t, "enforce")
	p = killAfterReserve(t, p)
	p = killAfterApply(t, p)
	p = killMidSnapshot(t, p)
	if took := p.stop(); took > 5*time.Second {
		t.Errorf("Ctrl-C took %s, want at most 5 s", took)
	}
	if out, err := verify(t, data); err != nil {
		t.Errorf("verify of the stopped installation: %v\n%s", err, out)
	}
}

// killAfterReserve kills while the record system has not applied yet.
func killAfterReserve(t *testing.T, p *process) *process {
	p.faults(map[string]any{"kind": "latency_before", "duration_ms": 100000})
	go func() { _, _, _ = p.agentCall(http.MethodPost, mutationsPath, mutation("evt-reserved")) }()
	key := gate.NaturalKey(care, gate.EventRef{Account: "home", ID: "evt-reserved"}, "")
	eventually(t, "the row is in flight", 20*time.Second, func() bool {
		status, answer, err := p.agentCall(http.MethodGet, mutationsPath+"/"+key.String(), nil)
		return err == nil && status == http.StatusOK && answer["state"] == "in_flight"
	})
	status, answer, err := p.agentCall(http.MethodPost, mutationsPath, mutation("evt-reserved"))
	if err != nil || status != http.StatusConflict || answer["state"] != "in_flight" {
		t.Errorf("the same mutation while it is in flight: %d %v %v", status, answer, err)
	}
	p.kill()
	p = startDemo(t, p.data)
	var last map[string]any
	eventually(t, "reconciliation proved absence, and the resend is applied", time.Minute, func() bool {
		status, answer, err := p.agentCall(http.MethodPost, mutationsPath, mutation("evt-reserved"))
		last = answer
		return err == nil && status == http.StatusOK && answer["state"] == "committed"
	})
	if n := p.count("evt-reserved"); n != 1 {
		t.Errorf("after the kill behind reserve: %d visits, want 1 (%v)", n, last)
	}
	p.checkNothingDoubled()
	return p
}

// killAfterApply kills after the record system applied, before the settling.
func killAfterApply(t *testing.T, p *process) *process {
	p.faults(map[string]any{"kind": "latency_after", "duration_ms": 100000, "match": map[string]any{"op": "create"}})
	go func() { _, _, _ = p.agentCall(http.MethodPost, mutationsPath, mutation("evt-applied")) }()
	eventually(t, "the record system has applied", 20*time.Second, func() bool { return p.count("evt-applied") == 1 })
	p.kill()
	p = startDemo(t, p.data)
	eventually(t, "reconciliation found the effect", time.Minute, func() bool {
		status, answer, err := p.agentCall(http.MethodPost, mutationsPath, mutation("evt-applied"))
		return err == nil && status == http.StatusOK && answer["state"] == "committed"
	})
	if n := p.count("evt-applied"); n != 1 {
		t.Errorf("after the kill behind the effect: %d visits, want 1", n)
	}
	p.checkNothingDoubled()
	return p
}

// killMidRollback kills twice while a rollback is applied.
func killMidRollback(t *testing.T, p *process) *process {
	console := signIn(t, p)
	id := console.planRollback(t)
	p.faults(map[string]any{"kind": "latency_before", "duration_ms": 15, "match": map[string]any{"op": "delete"}})
	console.approve(t, id)
	for _, below := range []int{560, 460} {
		eventually(t, fmt.Sprintf("fewer than %d visits are left", below), 50*time.Second, func() bool { return p.wednesday() < below })
		p.kill()
		p = startDemo(t, p.data)
		p.faults(map[string]any{"kind": "latency_before", "duration_ms": 15, "match": map[string]any{"op": "delete"}})
	}
	p.faults()
	console = signIn(t, p)
	eventually(t, "the rollback is applied and read back", 3*time.Minute, func() bool {
		return strings.Contains(console.rollbackState(t, id), "applied")
	})
	if got := p.wednesday(); got != 312 {
		t.Errorf("after the kills amid the rollback the board holds %d visits, want 312", got)
	}
	p.checkNothingDoubled()
	return p
}

// killMidSnapshot kills while the object store hangs amid a snapshot, and then
// at five moments of running snapshots.
func killMidSnapshot(t *testing.T, p *process) *process {
	children := p.children()
	delete(children, "postgres")
	var stores []int
	for _, pids := range children {
		stores = append(stores, pids...)
	}
	if len(stores) != 1 {
		t.Fatalf("besides Postgres there are the children %v, want the object store alone", children)
	}
	if err := syscall.Kill(stores[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go signIn(t, p).take()
	time.Sleep(300 * time.Millisecond) // the put is under way now, or about to be
	p.kill()
	for i := range 5 {
		p = startDemo(t, p.data)
		console := signIn(t, p)
		go console.take()
		time.Sleep(time.Duration(i) * 15 * time.Millisecond)
		p.kill()
	}
	p = startDemo(t, p.data)
	if err := signIn(t, p).take(); err != nil {
		t.Errorf("a snapshot after the kills: %v", err)
	}
	if out, err := verify(t, p.data); err != nil {
		t.Errorf("the chain after the kills: %v\n%s", err, out)
	}
	return p
}
