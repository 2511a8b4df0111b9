package handlers

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// disabledFor says why the person may not decide; empty when they may.
func disabledFor(c *web.Context) string {
	for _, r := range web.Deciders {
		if c.User.Role == r {
			return ""
		}
	}
	return c.T("desk.role_refused", "Role", c.T("role."+string(c.User.Role)))
}

func reasonText(ctx context.Context, r gate.Reason) string {
	if r == "" {
		return ""
	}
	return i18n.T(ctx, "reason."+string(r))
}

func reasonTodo(ctx context.Context, r gate.Reason) string {
	return i18n.T(ctx, "reason."+string(r)+".todo")
}

// operation reads "create visit", with the id where there is one.
func operation(ctx context.Context, m gate.Mutation) string {
	text := i18n.T(ctx, "op."+string(m.Op)) + " " + m.Type
	if m.ID != "" {
		text += " " + m.ID
	}
	return text
}

// what is the operation and whom it concerns.
func what(ctx context.Context, m gate.Mutation) string {
	if m.Subject == "" {
		return operation(ctx, m)
	}
	return i18n.T(ctx, "desk.what", "Operation", operation(ctx, m), "Subject", m.Subject)
}

func itemWhat(ctx context.Context, i gate.Item) string {
	switch {
	case i.Mutation != nil:
		return what(ctx, i.Mutation.Mutation)
	case i.Delivery != nil && i.Delivery.Event.ID != "":
		return i18n.T(ctx, "desk.delivery_of", "Event", i.Delivery.Event.ID)
	}
	return i18n.T(ctx, "desk.delivery")
}

func itemMark(ctx context.Context, s gate.ItemState) views.Mark {
	tone := "ok"
	switch s {
	case gate.ItemOpen, gate.ItemReleasing:
		tone = "warn"
	}
	return views.Mark{Tone: tone, Text: i18n.T(ctx, "item.state."+string(s))}
}

func pairMark(ctx context.Context, s gate.PairState) views.Mark {
	tone := "ok"
	switch s {
	case gate.PairOpen:
		tone = "warn"
	case gate.PairDuplicate:
		tone = "crit"
	}
	return views.Mark{Tone: tone, Text: i18n.T(ctx, "pair.state."+string(s))}
}

// stateMark is where a reservation stands; a mutation that was never forwarded
// has none and shows its decision.
func stateMark(ctx context.Context, m gate.MutationRecord) views.Mark {
	switch m.State {
	case "":
		return decisionMark(ctx, m)
	case gate.Committed:
		return views.Mark{Tone: "ok", Text: i18n.T(ctx, "res.committed")}
	case gate.Manual:
		return views.Mark{Tone: "crit", Text: i18n.T(ctx, "res.manual")}
	case gate.RolledBack:
		return views.Mark{Tone: "ok", Text: i18n.T(ctx, "res.rolled_back")}
	}
	return views.Mark{Tone: "warn", Text: i18n.T(ctx, "res."+string(m.State))}
}

// decisionMark is what admission decided.
func decisionMark(ctx context.Context, m gate.MutationRecord) views.Mark {
	tone := "ok"
	switch m.Verdict {
	case gate.Drop:
		tone = "crit"
	case gate.Quarantine:
		tone = "warn"
	}
	return views.Mark{Tone: tone, Text: i18n.T(ctx, "verdict."+string(m.Verdict))}
}

// decisionText adds the reason, and says when it was not carried out.
func decisionText(ctx context.Context, m gate.MutationRecord) string {
	text := reasonText(ctx, m.Reason)
	if m.Verdict != gate.Forward && m.Forwarded {
		text = strings.TrimSpace(text + " " + i18n.T(ctx, "desk.forwarded_anyway", "Mode", modeName(ctx, m.Mode)))
	}
	return text
}

func modeName(ctx context.Context, m gate.Mode) string {
	if m == "" {
		return ""
	}
	return i18n.T(ctx, "mode."+string(m))
}

func mutationName(id int64) string { return "M-" + strconv.FormatInt(id, 10) }
func itemName(id int64) string     { return "Q-" + strconv.FormatInt(id, 10) }
func pairName(id int64) string     { return "P-" + strconv.FormatInt(id, 10) }
func rollbackName(id int64) string { return "R-" + strconv.FormatInt(id, 10) }

// decidedBy reads "rejected by anna, 2025-10-26 06:41:02 +01:00".
func decidedBy(ctx context.Context, i gate.Item) string {
	if i.DecidedAt.IsZero() {
		return ""
	}
	return i18n.T(ctx, "item.decided_by", "State", i18n.T(ctx, "item.state."+string(i.State)),
		"By", i.DecidedBy, "At", i18n.Time(ctx, i.DecidedAt))
}

// lostRace names who decided what and when; stale is said where nobody decided,
// yet the row has moved.
func lostRace(ctx context.Context, e *gate.DecidedError) string {
	if e == nil {
		return i18n.T(ctx, "desk.stale")
	}
	return i18n.T(ctx, "desk.lost_race", "What", e.What, "State", stateWord(ctx, e.What, e.State),
		"By", e.By, "At", i18n.Time(ctx, e.At))
}

// stateWord is the state of an object in words, by the kind of the object.
func stateWord(ctx context.Context, object, state string) string {
	switch {
	case strings.HasPrefix(object, "Q-"):
		return i18n.T(ctx, "item.state."+state)
	case strings.HasPrefix(object, "P-"):
		return i18n.T(ctx, "pair.state."+state)
	case strings.HasPrefix(object, "M-"):
		return i18n.T(ctx, "res."+state)
	}
	return state
}

// payloadText is a payload for reading: JSON indented as it came, other text
// as it is, bytes that are no text in hexadecimal.
func payloadText(payload []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, payload, "", "  ") == nil && utf8.Valid(payload) {
		return out.String()
	}
	if utf8.Valid(payload) {
		return string(payload)
	}
	return hex.Dump(payload)
}

// shortHash is the first eight digits of a hash, enough to compare by eye.
func shortHash(hash [32]byte) string {
	if hash == ([32]byte{}) {
		return ""
	}
	return hex.EncodeToString(hash[:4])
}

func fullHash(hash [32]byte) string {
	if hash == ([32]byte{}) {
		return ""
	}
	return hex.EncodeToString(hash[:])
}

// fields is a document as one column.
func fields(ctx context.Context, caption string, document json.RawMessage) views.Diff {
	return views.NewDiff(caption, []string{i18n.T(ctx, "diff.value")}, document)
}
