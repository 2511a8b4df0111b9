package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sluis/gate"
	"sluis/web"
)

// AgentGate is what the agents' API asks of the gate.
type AgentGate interface {
	Submit(ctx context.Context, by gate.Actor, req gate.Request) (gate.Decision, error)
	Receive(ctx context.Context, by gate.Actor, integration string, raw []byte) (gate.Receipt, error)
	KeyStatus(ctx context.Context, integration string, key gate.Key) (gate.Decision, error)
	CloseEvent(ctx context.Context, by gate.Actor, integration string, ref gate.EventRef, run string) error
	Events(ctx context.Context, integration string, after int64, limit int) ([]gate.InboxEvent, error)
	Projected(ctx context.Context, integration, typ, id string) (gate.Projected, error)
}

// retryInFlight is when a caller should ask again for a key that is being sent.
const retryInFlight = time.Second

// retryUnavailable is when a caller should come back while the store is down.
const retryUnavailable = 2 * time.Second

// Agents returns the routes of the API for agents and providers.
func Agents(g AgentGate) []web.AgentRoute {
	h := agents{g}
	const base = "/v1/integrations/:integration"
	return []web.AgentRoute{
		{Method: http.MethodPost, Path: base + "/mutations", Name: "submit-mutation", Handler: h.submit},
		{Method: http.MethodGet, Path: base + "/mutations/:key", Name: "mutation-status", Handler: h.status},
		{Method: http.MethodPost, Path: base + "/events", Name: "deliver-event", Handler: h.deliver},
		{Method: http.MethodGet, Path: base + "/events", Name: "pull-events", Handler: h.pull},
		{Method: http.MethodPost, Path: base + "/events/close", Name: "close-event", Handler: h.closeEvent},
		{Method: http.MethodGet, Path: base + "/entities/:type/:id", Name: "entity", Handler: h.entity},
	}
}

type agents struct{ gate AgentGate }

// decisionJSON is the wire form of a decision.
type decisionJSON struct {
	Decision    gate.Verdict `json:"decision"`
	Reason      gate.Reason  `json:"reason,omitempty"`
	Key         string       `json:"key,omitempty"`
	State       gate.State   `json:"state,omitempty"`
	ExternalRef string       `json:"external_ref,omitempty"`
	FirstSeen   string       `json:"first_seen,omitempty"`
	Item        string       `json:"item,omitempty"`
	Mutation    string       `json:"mutation,omitempty"`
	Detail      string       `json:"detail,omitempty"`
}

func newDecisionJSON(d gate.Decision) decisionJSON {
	out := decisionJSON{
		Decision: d.Verdict, Reason: d.Reason, State: d.State, ExternalRef: d.ExternalRef, Detail: d.Detail,
	}
	if d.Key != (gate.Key{}) {
		out.Key = d.Key.String()
	}
	if !d.FirstSeen.IsZero() {
		out.FirstSeen = d.FirstSeen.UTC().Format(time.RFC3339Nano)
	}
	if d.Item != 0 {
		out.Item = "Q-" + strconv.FormatInt(d.Item, 10)
	}
	if d.MutationID != 0 {
		out.Mutation = "M-" + strconv.FormatInt(d.MutationID, 10)
	}
	return out
}

// submit admits one mutation.
func (h agents) submit(c *web.AgentContext) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	if len(body) > maxRequest {
		return &web.Problem{Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("A mutation request may hold %d bytes.", maxRequest)}
	}
	req, err := readRequest(body)
	if err != nil {
		return malformed(err)
	}
	req.Integration = c.Param("integration")
	if req.Agent == "" {
		req.Agent = c.Principal.Agent
	}
	d, err := h.gate.Submit(c.Ctx(), gate.Agent(c.Principal.Agent), req)
	if err != nil {
		return agentProblem(d, err)
	}
	return writeDecision(c, d)
}

// writeDecision answers with the status that the decision stands for.
func writeDecision(c *web.AgentContext, d gate.Decision) error {
	status := http.StatusOK
	switch {
	case d.Verdict == gate.Quarantine && d.Reason == gate.ReasonKeyConflict:
		return &web.Problem{
			Status: http.StatusUnprocessableEntity, Title: "The key was used for another mutation",
			Detail:     "This event and effect were admitted before with another mutation. It is held as " + newDecisionJSON(d).Item + " for a person.",
			Extensions: extensions(d, false),
		}
	case d.Verdict == gate.Quarantine, d.State == gate.Unknown, d.State == gate.Manual:
		status = http.StatusAccepted
	}
	if d.Verdict == gate.Drop {
		c.Response().Header().Set("Idempotent-Replayed", "true")
	}
	return c.JSON(status, newDecisionJSON(d))
}

// agentProblem turns what the gate says into a problem document. safe says
// whether a caller may try the same intent under a new key: only where nothing
// can have been sent.
func agentProblem(d gate.Decision, err error) error {
	switch {
	case errors.Is(err, gate.ErrInFlight):
		return &web.Problem{Status: http.StatusConflict, Title: "The same mutation is being sent now",
			Detail: "Ask again: the outcome will be known shortly.", RetryAfter: retryInFlight, Extensions: extensions(d, false), Err: err}
	case errors.Is(err, gate.ErrUnavailable):
		return &web.Problem{Status: http.StatusServiceUnavailable, Title: "The gate's store is not available",
			Detail:     "Nothing is forwarded without its row. Send the same request again; a new key is not needed.",
			RetryAfter: retryUnavailable, Extensions: extensions(d, false), Err: err}
	case errors.Is(err, gate.ErrMalformed):
		return malformed(err)
	case errors.Is(err, gate.ErrNotFound):
		return &web.Problem{Status: http.StatusNotFound, Detail: "There is no such integration, key or entity.", Err: err}
	case errors.Is(err, gate.ErrStale):
		return &web.Problem{Status: http.StatusConflict, Detail: "The event is closed already, or belongs to another run.", Err: err}
	}
	return err
}

func malformed(err error) error {
	return &web.Problem{Status: http.StatusBadRequest, Title: "Malformed request",
		Detail: err.Error(), Extensions: map[string]any{"reason": string(gate.ReasonMalformedBody)}, Err: err}
}

func extensions(d gate.Decision, safe bool) map[string]any {
	j := newDecisionJSON(d)
	out := map[string]any{"new_key_is_safe": safe}
	for name, v := range map[string]string{"key": j.Key, "state": string(j.State), "reason": string(j.Reason), "item": j.Item} {
		if v != "" {
			out[name] = v
		}
	}
	return out
}

// status answers what became of a key.
func (h agents) status(c *web.AgentContext) error {
	key, err := gate.ParseKey(c.Param("key"))
	if err != nil {
		return malformed(err)
	}
	d, err := h.gate.KeyStatus(c.Ctx(), c.Param("integration"), key)
	if err != nil {
		return agentProblem(d, err)
	}
	return c.JSON(http.StatusOK, newDecisionJSON(d))
}

// receiptJSON is the wire form of a receipt.
type receiptJSON struct {
	Receipt     string           `json:"receipt"`
	Disposition gate.Disposition `json:"disposition"`
	Reason      gate.Reason      `json:"reason,omitempty"`
	Item        string           `json:"item,omitempty"`
	HandOn      bool             `json:"hand_on"`
	FirstSeen   string           `json:"first_seen,omitempty"`
}

// deliver stores one webhook as it came.
func (h agents) deliver(c *web.AgentContext) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	r, err := h.gate.Receive(c.Ctx(), gate.Agent(c.Principal.Agent), c.Param("integration"), body)
	if err != nil {
		return agentProblem(gate.Decision{}, err)
	}
	out := receiptJSON{
		Receipt: "D-" + strconv.FormatInt(r.ID, 10), Disposition: r.Disposition, Reason: r.Reason,
		HandOn: r.HandOn, FirstSeen: r.FirstSeen.UTC().Format(time.RFC3339Nano),
	}
	if r.Item != 0 {
		out.Item = "Q-" + strconv.FormatInt(r.Item, 10)
	}
	return c.JSON(http.StatusAccepted, out)
}

// eventJSON is the wire form of an event that waits for an agent.
type eventJSON struct {
	Seq        int64           `json:"seq"`
	Account    string          `json:"account"`
	EventID    string          `json:"event_id"`
	OccurredAt string          `json:"occurred_at"`
	Kind       string          `json:"kind,omitempty"`
	ReceivedAt string          `json:"received_at"`
	Payload    json.RawMessage `json:"payload"`
}

// pull lists stored events after a cursor.
func (h agents) pull(c *web.AgentContext) error {
	if s := c.QueryParam("state"); s != "" && s != "stored" {
		return malformed(fmt.Errorf("state %q: only stored events can be listed", s))
	}
	after, err := queryInt(c, "after", 0)
	if err != nil {
		return malformed(err)
	}
	limit, err := queryInt(c, "limit", 100)
	if err != nil {
		return malformed(err)
	}
	list, err := h.gate.Events(c.Ctx(), c.Param("integration"), after, int(min(limit, 500)))
	if err != nil {
		return agentProblem(gate.Decision{}, err)
	}
	out := struct {
		Events []eventJSON `json:"events"`
		Next   int64       `json:"next"`
	}{Events: []eventJSON{}, Next: after}
	for _, e := range list {
		out.Next = e.Seq
		out.Events = append(out.Events, eventJSON{
			Seq: e.Seq, Account: e.Event.Account, EventID: e.Event.ID, OccurredAt: e.Event.OccurredAt,
			Kind: e.Kind, ReceivedAt: e.ReceivedAt.UTC().Format(time.RFC3339Nano), Payload: e.Payload,
		})
	}
	return c.JSON(http.StatusOK, out)
}

func queryInt(c *web.AgentContext, name string, def int64) (int64, error) {
	text := c.QueryParam(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s must be a whole number from 0 up", name)
	}
	return n, nil
}

// closeEvent closes an event for the run that handled it.
func (h agents) closeEvent(c *web.AgentContext) error {
	body, err := c.Body()
	if err != nil {
		return err
	}
	fields, err := readObject(body, "request", "account", "event_id", "occurred_at", "run")
	if err != nil {
		return malformed(err)
	}
	ref := gate.EventRef{}
	var run string
	if err := errors.Join(
		readString(fields, "account", &ref.Account), readString(fields, "event_id", &ref.ID),
		readString(fields, "occurred_at", &ref.OccurredAt), readString(fields, "run", &run)); err != nil {
		return malformed(err)
	}
	if ref.ID == "" || run == "" {
		return malformed(errors.New("event_id and run are required"))
	}
	if err := h.gate.CloseEvent(c.Ctx(), gate.Agent(c.Principal.Agent), c.Param("integration"), ref, run); err != nil {
		return agentProblem(gate.Decision{}, err)
	}
	return c.NoContent(http.StatusNoContent)
}

// pathValue is a segment of the path as it was meant: an id may hold a slash.
// The router matches the escaped path where it differs from the plain one, and
// hands out its segments as they came.
func pathValue(c *web.AgentContext, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value, nil
	}
	plain, err := url.PathUnescape(value)
	if err != nil {
		return "", fmt.Errorf("%s: the path is not escaped as a path: %w", name, err)
	}
	return plain, nil
}

// entity returns the projection's record of one entity.
func (h agents) entity(c *web.AgentContext) error {
	typ, err := pathValue(c, "type")
	if err != nil {
		return malformed(err)
	}
	id, err := pathValue(c, "id")
	if err != nil {
		return malformed(err)
	}
	p, err := h.gate.Projected(c.Ctx(), c.Param("integration"), typ, id)
	if err != nil {
		return agentProblem(gate.Decision{}, err)
	}
	return c.JSON(http.StatusOK, struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		Version   int64           `json:"version"`
		Deleted   bool            `json:"deleted"`
		State     json.RawMessage `json:"state"`
		UpdatedAt string          `json:"updated_at"`
	}{p.Type, p.ID, p.Version, p.Deleted, p.State, p.UpdatedAt.UTC().Format(time.RFC3339Nano)})
}
