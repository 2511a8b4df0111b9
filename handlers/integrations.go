package handlers

import (
	"context"

	"sluis/gate"
)

// IntegrationDesk lists integrations and switches them. A switch is bound to
// the version that the person saw.
type IntegrationDesk interface {
	Integrations(ctx context.Context) ([]gate.Integration, error)
	SetMode(ctx context.Context, by gate.Actor, id string, mode gate.Mode, version int64, note string) error
	SetFrozen(ctx context.Context, by gate.Actor, id string, frozen bool, version int64, note string) error
}
