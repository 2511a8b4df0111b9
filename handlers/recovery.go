package handlers

import (
	"context"
	"log/slog"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/web"
)

// RecoveryDeps is what the pages of snapshots, rollbacks and integrations need.
type RecoveryDeps struct {
	Gate      *gate.Gate
	Snapshots *snapshots.Service
	Log       *slog.Logger
}

// Recovery returns the routes of snapshots, rollbacks and integrations.
func Recovery(RecoveryDeps) []web.Route { return nil }

// Chrome is what surrounds every page.
func Chrome(context.Context, *gate.Gate, *snapshots.Service, string) (views.Chrome, error) {
	return views.Chrome{}, nil
}
