package gate_test

import (
	"encoding/json"
	"testing"
	"testing/quick"

	"sluis/gate"
)

func TestNaturalKeyIsAFunctionOfTheRequestOnly(t *testing.T) {
	ref := gate.EventRef{Account: "ons", ID: "evt-1", OccurredAt: "2025-10-26T02:47:00+02:00"}
	again := ref
	again.OccurredAt = "2025-10-26T02:13:00+01:00" // a redelivery with another time
	key := gate.NaturalKey("care", ref, "swap")
	if gate.NaturalKey("care", again, "swap") != key {
		t.Error("the time is part of the key")
	}
	// A key that was ever stored must stay what it was.
	const stored = "6229077de4570789ec1bb88775550d4ef459436514c64b5b4f29b41eedfacead"
	if key.String() != stored {
		t.Errorf("key %s, stored %s", key, stored)
	}
	if back, err := gate.ParseKey(stored); err != nil || back != key {
		t.Errorf("ParseKey: %v, %v", back, err)
	}
}

func TestNaturalKeyIsInjectiveOverSeparators(t *testing.T) {
	seen := map[gate.Key][4]string{}
	parts := []string{"", "a", "b", "ab", ":", "a:", ":a", "|", "\x00", "a\x00", "\x00a", "a\x00b", "\x00\x00\x00\x00\x00\x00\x00\x01a"}
	for _, integration := range parts {
		for _, account := range parts {
			for _, id := range parts {
				for _, effect := range parts {
					key := gate.NaturalKey(integration, gate.EventRef{Account: account, ID: id}, effect)
					what := [4]string{integration, account, id, effect}
					if other, ok := seen[key]; ok {
						t.Fatalf("%q and %q have one key", other, what)
					}
					seen[key] = what
				}
			}
		}
	}
}

func TestKeysNeverMeet(t *testing.T) {
	property := func(a, b [4]string) bool {
		natural := func(p [4]string) gate.Key {
			return gate.NaturalKey(p[0], gate.EventRef{Account: p[1], ID: p[2]}, p[3])
		}
		other := a
		other[0] += "x"
		return (natural(a) == natural(b)) == (a == b) && natural(a) != natural(other) &&
			gate.DerivedKey(a[0], a[1:]...) != natural(a) &&
			(gate.DerivedKey(a[0], a[1:]...) == gate.DerivedKey(b[0], b[1:]...)) == (a == b) &&
			gate.DerivedKey(a[0], a[1:3]...) != gate.DerivedKey(a[0], a[1], a[2], "")
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
	if gate.DerivedKey("release", "1", "2") == gate.DerivedKey("release", "12") || gate.DerivedKey("release", "1") == gate.DerivedKey("rollback", "1") {
		t.Error("derived keys meet")
	}
}

func TestFingerprint(t *testing.T) {
	m := gate.Mutation{Op: gate.OpUpdate, Type: "visit", ID: "V-1", Subject: "client/7", Body: json.RawMessage(`{"nurse":"a"}`)}
	base := gate.Fingerprint(m)
	for name, change := range map[string]func(*gate.Mutation){
		"op":      func(m *gate.Mutation) { m.Op = gate.OpCreate },
		"type":    func(m *gate.Mutation) { m.Type = "visits" },
		"id":      func(m *gate.Mutation) { m.ID = "V-2" },
		"subject": func(m *gate.Mutation) { m.Subject = "client/8" },
		"body":    func(m *gate.Mutation) { m.Body = json.RawMessage(`{"nurse":"b"}`) },
		"quotes":  func(m *gate.Mutation) { m.ID, m.Subject = `V-1","x":"`, `` },
	} {
		changed := m
		change(&changed)
		if gate.Fingerprint(changed) == base {
			t.Errorf("%s is not part of the fingerprint", name)
		}
	}
	empty, none := m, m
	empty.Body, none.Body = json.RawMessage("{}"), nil
	if gate.Fingerprint(empty) != gate.Fingerprint(none) {
		t.Error("no body and an empty one differ")
	}
}
