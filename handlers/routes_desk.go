package handlers

import (
	"context"
	"log/slog"
	"net/http"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/web"
)

// DeskGate is what the pages of the desk need from the gate; *gate.Gate
// satisfies it. Each page declares its own part.
type DeskGate interface {
	IntegrationReader
	SignalBoard
	EventReader
	ItemDesk
	OutcomeDesk
	PairDesk
	HistoryReader
}

// IntegrationReader gives an integration with its mode.
type IntegrationReader interface {
	Integration(ctx context.Context, id string) (gate.Integration, error)
}

// SnapshotSignal gives the signal that the gate does not know: the age and
// soundness of the snapshots.
type SnapshotSignal interface {
	Signal(ctx context.Context, integration string) (gate.Signal, error)
}

// AuditReader reads the audit record; audit.Reader satisfies it.
type AuditReader interface {
	List(ctx context.Context, f audit.Filter) ([]audit.Record, error)
	Each(ctx context.Context, f audit.Filter, do func(audit.Record) error) error
	Head(ctx context.Context) (audit.Head, error)
	Verify(ctx context.Context) (audit.Head, error)
}

// DeskDeps is what Desk needs; every field is required.
type DeskDeps struct {
	Gate     DeskGate
	Snapshot SnapshotSignal
	Audit    AuditReader
	Log      *slog.Logger
}

type desk struct {
	gate     DeskGate
	snapshot SnapshotSignal
	audit    AuditReader
	log      *slog.Logger
}

// Desk returns the routes of the daily pages: dashboard, drops, quarantine, in
// flight, pairs, history and audit.
func Desk(deps DeskDeps) []web.Route {
	d := desk{gate: deps.Gate, snapshot: deps.Snapshot, audit: deps.Audit, log: deps.Log}
	read := func(path, name string, h func(*web.Context) error) web.Route {
		return web.Route{Method: http.MethodGet, Path: path, Name: name, Allow: web.Everyone, Handler: h}
	}
	decide := func(path, name string, h func(*web.Context) error) web.Route {
		return web.Route{Method: http.MethodPost, Path: path, Name: name, Allow: web.Deciders, Handler: h}
	}
	live := func(path, name string, h func(*web.Context) error) web.Route {
		r := read(path, name, h)
		r.Stream = true
		return r
	}
	return []web.Route{
		read("/", "dashboard", d.dashboard),
		live("/stream/dashboard", "dashboard.stream", d.dashboardStream),
		decide("/signals/:signal/acknowledge", "signals.acknowledge", d.acknowledge),
		read("/drops", "drops", d.drops),
		read("/drops.csv", "drops.csv", d.dropsCSV),
		read("/drops/:account/:event", "drops.event", d.dropEvent),
		read("/quarantine", "quarantine", d.quarantine),
		read("/quarantine.csv", "quarantine.csv", d.quarantineCSV),
		live("/stream/quarantine", "quarantine.stream", d.quarantineStream),
		decide("/quarantine/bulk", "quarantine.bulk", d.bulk),
		read("/quarantine/:id", "quarantine.item", d.item),
		decide("/quarantine/:id/release", "quarantine.release", d.release),
		decide("/quarantine/:id/undo", "quarantine.undo", d.undo),
		decide("/quarantine/:id/reject", "quarantine.reject", d.reject),
		read("/in-flight", "inflight", d.inFlight),
		read("/in-flight.csv", "inflight.csv", d.inFlightCSV),
		decide("/in-flight/:id/settle", "inflight.settle", d.settle),
		read("/pairs", "pairs", d.pairs),
		read("/pairs.csv", "pairs.csv", d.pairsCSV),
		decide("/pairs/scan", "pairs.scan", d.scanPairs),
		read("/pairs/:id", "pairs.pair", d.pair),
		decide("/pairs/:id/verdict", "pairs.verdict", d.verdict),
		read("/history", "history", d.history),
		read("/history.csv", "history.csv", d.historyCSV),
		read("/history/:type/:id", "history.entity", d.entity),
		read("/mutations/:id", "mutation", d.mutation),
		read("/events/:account/:event", "event", d.event),
		read("/audit", "audit", d.auditList),
		read("/audit.csv", "audit.csv", d.auditCSV),
		read("/audit/:id", "audit.record", d.auditRecord),
	}
}

// Topic is the name under which a change of an integration is published to the
// pages that live: what gate's Listen reports, as the hub carries it.
func Topic(integration, topic string) string { return integration + "/" + topic }

// topics are Topics of one integration.
func topics(integration string, names ...string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = Topic(integration, name)
	}
	return list
}
