package gate

import (
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sluis/gate/audit"
)

// pgconnTag shortens the callbacks of batches.
type pgconnTag = pgconn.CommandTag

// entry is an audit entry of the gate.
func entry(at time.Time, by Actor, integration, action, object string, detail map[string]any) audit.Entry {
	return audit.Entry{
		At: at, ActorKind: string(by.Kind), Actor: by.Name,
		Integration: integration, Action: action, Object: object, Detail: detail,
	}
}
