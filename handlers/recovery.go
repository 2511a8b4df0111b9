package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/web"
)

// RecoveryGate is what the pages of snapshots, rollbacks and integrations need
// from the gate; *gate.Gate satisfies it.
type RecoveryGate interface {
	IntegrationReader
	IntegrationDesk
}

// RecoverySnapshots is what they need from the snapshots; *snapshots.Service
// satisfies it.
type RecoverySnapshots interface {
	SnapshotDesk
	RollbackPlanner
	RollbackReader
	RollbackDesk
}

// SnapshotDesk reads sealed states, asks for one and has them verified.
type SnapshotDesk interface {
	List(ctx context.Context, integration string, beforeSeq int64, limit int) ([]snapshots.Snapshot, error)
	Get(ctx context.Context, integration string, seq int64) (snapshots.Snapshot, error)
	LastGood(ctx context.Context, integration string) (snapshots.Snapshot, gate.Pair, error)
	Take(ctx context.Context, by gate.Actor, integration string) (snapshots.Snapshot, error)
	RequestVerify(ctx context.Context, by gate.Actor, integration string) error
	Signal(ctx context.Context, integration string) (gate.Signal, error)
}

// RollbackPlanner proposes what to undo and asks for the dry run.
type RollbackPlanner interface {
	Propose(ctx context.Context, integration string, seq int64) (snapshots.Proposal, error)
	CreatePlan(ctx context.Context, by gate.Actor, req snapshots.PlanRequest) (snapshots.Rollback, error)
	Replan(ctx context.Context, by gate.Actor, id int64) (snapshots.Rollback, error)
}

// RollbackReader reads plans and what became of them.
type RollbackReader interface {
	Rollback(ctx context.Context, id int64) (snapshots.Rollback, error)
	Rollbacks(ctx context.Context, integration string, before int64, limit int) ([]snapshots.Rollback, error)
	Groups(ctx context.Context, id int64) ([]snapshots.Group, error)
	Rows(ctx context.Context, id int64, groupKey string, afterRow, limit int) ([]snapshots.Row, error)
}

// RollbackDesk takes what a person decides about a plan; each decision is bound
// to the version that they saw.
type RollbackDesk interface {
	SetChoice(ctx context.Context, by gate.Actor, id int64, row int, choice string, version int64) (snapshots.Rollback, error)
	Approve(ctx context.Context, by gate.Actor, id, version int64, hash [32]byte) (snapshots.Rollback, error)
	Resume(ctx context.Context, by gate.Actor, id, version int64) (snapshots.Rollback, error)
	SkipFailed(ctx context.Context, by gate.Actor, id int64, row int, version int64, note string) (snapshots.Rollback, error)
	Cancel(ctx context.Context, by gate.Actor, id, version int64) (snapshots.Rollback, error)
}

// RecoveryDeps is what Recovery needs; every field is required.
type RecoveryDeps struct {
	Gate      RecoveryGate
	Snapshots RecoverySnapshots
	Log       *slog.Logger
}

type recovery struct {
	gate      RecoveryGate
	snapshots RecoverySnapshots
	log       *slog.Logger
}

// Recovery returns the routes of snapshots, rollbacks and integrations.
func Recovery(deps RecoveryDeps) []web.Route {
	r := recovery{gate: deps.Gate, snapshots: deps.Snapshots, log: deps.Log}
	route := func(method, path, name string, allow []web.Role, h func(*web.Context) error) web.Route {
		return web.Route{Method: method, Path: path, Name: name, Allow: allow, Handler: h}
	}
	read := func(path, name string, h func(*web.Context) error) web.Route {
		return route(http.MethodGet, path, name, web.Everyone, h)
	}
	plan := func(path, name string, h func(*web.Context) error) web.Route {
		return route(http.MethodPost, path, name, web.Planners, h)
	}
	live := func(path, name string, h func(*web.Context) error) web.Route {
		stream := read(path, name, h)
		stream.Stream = true
		return stream
	}
	return []web.Route{
		read("/rollbacks", "rollbacks", r.rollbacks),
		read("/rollbacks.csv", "rollbacks.csv", r.rollbacksCSV),
		read("/rollbacks/new", "rollbacks.new", r.newRollback),
		plan("/rollbacks", "rollbacks.create", r.createRollback),
		read("/rollbacks/:id", "rollbacks.rollback", r.rollback), // with .csv at its end the rows as CSV
		read("/rollbacks/:id/groups/:key", "rollbacks.group", r.rollbackGroup),
		live("/stream/rollbacks/:id", "rollbacks.stream", r.rollbackStream),
		plan("/rollbacks/:id/approve", "rollbacks.approve", r.approve),
		plan("/rollbacks/:id/choice", "rollbacks.choice", r.choice),
		plan("/rollbacks/:id/cancel", "rollbacks.cancel", r.cancel),
		plan("/rollbacks/:id/resume", "rollbacks.resume", r.resume),
		plan("/rollbacks/:id/skip", "rollbacks.skip", r.skip),
		plan("/rollbacks/:id/replan", "rollbacks.replan", r.replan),
		read("/snapshots", "snapshots", r.snapshotList),
		read("/snapshots.csv", "snapshots.csv", r.snapshotsCSV),
		read("/snapshots/:seq", "snapshots.snapshot", r.snapshot),
		live("/stream/snapshots", "snapshots.stream", r.snapshotStream),
		route(http.MethodPost, "/snapshots/take", "snapshots.take", web.Deciders, r.takeSnapshot),
		route(http.MethodPost, "/snapshots/verify", "snapshots.verify", web.Deciders, r.verifySnapshots),
		read("/integrations", "integrations", r.integrations),
		plan("/integrations/:id/mode", "integrations.mode", r.switchMode),
		route(http.MethodPost, "/integrations/:id/freeze", "integrations.freeze", web.Admins, r.freeze),
	}
}

// failed logs why a part of a page cannot be read, under the request's id that
// the page shows.
func (r recovery) failed(ctx context.Context, c *web.Context, what string, err error) {
	r.log.ErrorContext(ctx, "part of a page failed", "request_id", c.RequestID, "part", what, "error", err)
}

// plannersOnly says why the person may not plan or approve; empty when they may.
func plannersOnly(c *web.Context) string {
	return refusedRole(c, web.Planners, "rollback.role_refused")
}

func refusedRole(c *web.Context, allowed []web.Role, message string) string {
	for _, r := range allowed {
		if c.User.Role == r {
			return ""
		}
	}
	return c.T(message, "Role", c.T("role."+string(c.User.Role)))
}

// csvID is the numeric parameter id of a path that may end in .csv.
func csvID(c *web.Context) (id int64, csv bool, err error) {
	text, csv := strings.CutSuffix(c.Param("id"), ".csv")
	id, err = positive(text)
	return id, csv, err
}
