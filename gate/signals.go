package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The limits that the signals go by.
const (
	heldTooLong   = 4 * time.Hour  // the oldest open item
	scanTooOld    = 26 * time.Hour // a nightly scan that did not come
	replayWindow  = 24 * time.Hour
	replayLow     = 0.01 // the healthy band of the replay ratio (incident 2)
	replayHigh    = 0.03
	replayBroken  = 0.20
	replayAtLeast = 100 // fewer mutations say nothing about the ratio
	clockSlight   = 2 * time.Second
	clockBroken   = time.Minute
	countMost     = 10_000 // counts stop here, so that a backlog costs no more to show
	namesMost     = 3      // rows that are called by name
)

// ClockReader compares the gate's clock with the machine's and the database's.
type ClockReader interface {
	Compare(ctx context.Context) (ClockReading, error)
}

// Signals are the rows of the dashboard, all but the snapshots', in the order
// of their importance. Each is read from partial indexes, counters and
// open rows, so the cost does not grow with the history. A figure that cannot
// be read is LevelNoData, never green. ErrNotFound for an unknown integration.
func (g *Gate) Signals(ctx context.Context, integration string) ([]Signal, error) {
	i, err := g.Integration(ctx, integration)
	if errors.Is(err, ErrNotFound) {
		return nil, err
	}
	reads := []struct {
		id   string
		read func(context.Context, Integration) (Signal, error)
	}{
		{SignalDrops, g.dropsSignal}, {SignalQuarantine, g.quarantineSignal}, {SignalInFlight, g.inFlightSignal},
		{SignalPairs, g.pairsSignal}, {SignalReplay, g.replaySignal}, {SignalClock, g.clockSignal},
	}
	at := g.clock.Now()
	list := make([]Signal, 0, len(reads))
	for _, r := range reads {
		s, failed := Signal{}, err
		if failed == nil {
			s, failed = r.read(ctx, i)
		}
		if failed != nil {
			g.log.Warn("a signal could not be read", "integration", integration, "signal", r.id, "err", failed)
			s = Signal{Level: LevelNoData, Why: "unreadable"}
		}
		s.ID, s.CheckedAt = r.id, at
		list = append(list, s)
	}
	return list, nil
}

// unacked sums up the drops since the acknowledgement.
type unacked struct {
	groups, shadowGroups       int64
	mutations, shadowMutations int64
	deliveries, all, upTo      int64
	oldest, oldestEnforced     *time.Time
	ackedBy                    string
	ackedAt                    *time.Time
}

// dropsSignal is red above zero until a named person has acknowledged the
// drops (incident 1, rule g). One event that is dropped again and again counts
// once. Above countMost, the newest are counted.
func (g *Gate) dropsSignal(ctx context.Context, i Integration) (Signal, error) {
	var u unacked
	err := g.pool.QueryRow(ctx, `
		with ack as (
			select coalesce(max(upto), 0) as upto, coalesce(max(by), '') as by, max(at) as at
			from acknowledgements where integration = $1 and signal = $2
		), new as (
			select d.id, d.at, d.kind, d.enforced, d.account, d.event_id, d.reason, d.mode
			from decisions d where d.integration = $1 and d.decision = 'drop' and d.id > (select upto from ack)
			order by d.id desc limit $3
		), per_group as (
			select enforced, count(*) filter (where kind = 'mutation') as mutations, count(*) filter (where kind = 'delivery') as deliveries,
			       max(id) as upto, min(at) as oldest, count(*) as n
			from new group by account, event_id, reason, mode, enforced
		)
		select count(*) filter (where enforced), count(*) filter (where not enforced),
		       coalesce(sum(mutations) filter (where enforced), 0), coalesce(sum(mutations) filter (where not enforced), 0),
		       coalesce(sum(deliveries), 0), coalesce(sum(n), 0), coalesce(max(upto), 0),
		       min(oldest), min(oldest) filter (where enforced), (select by from ack), (select at from ack)
		from per_group`, i.ID, SignalDrops, countMost).
		Scan(&u.groups, &u.shadowGroups, &u.mutations, &u.shadowMutations, &u.deliveries, &u.all, &u.upTo,
			&u.oldest, &u.oldestEnforced, &u.ackedBy, &u.ackedAt)
	if err != nil {
		return Signal{}, storeError(fmt.Errorf("count drops: %w", err))
	}
	return u.signal(i.Mode), nil
}

func (u unacked) signal(mode Mode) Signal {
	s := Signal{UpTo: u.upTo, AckedBy: u.ackedBy, AckedAt: utc(u.ackedAt)}
	switch {
	case u.groups > 0:
		s.Level, s.Why, s.Count, s.Since = LevelAct, "above_zero", u.groups, utc(u.oldestEnforced)
		s.WhyArgs = map[string]any{"mutations": u.mutations, "deliveries": u.deliveries, "capped": u.all >= countMost}
	case u.shadowGroups > 0:
		s.Level, s.Why, s.Count, s.Since = LevelCheck, "shadow", u.shadowGroups, utc(u.oldest)
		s.WhyArgs = map[string]any{"mutations": u.shadowMutations, "deliveries": u.deliveries, "capped": u.all >= countMost}
	case mode == ModeOff:
		s.Level, s.Why = LevelNoData, "off"
	case u.ackedBy != "":
		s.Level, s.Why, s.Since = LevelOK, "acknowledged", s.AckedAt
		s.WhyArgs = map[string]any{"by": u.ackedBy}
	default:
		s.Level, s.Why = LevelOK, "none"
	}
	return s
}

// quarantineSignal asks to look at what is held, and to act once it has waited
// too long.
func (g *Gate) quarantineSignal(ctx context.Context, i Integration) (Signal, error) {
	var n int64
	var oldest *time.Time
	err := g.pool.QueryRow(ctx, `
		select count(*), min(opened_at) from (
			select opened_at from quarantine_items where integration = $1 and state = 'open' order by id limit $2
		) open`, i.ID, countMost).Scan(&n, &oldest)
	if err != nil {
		return Signal{}, storeError(fmt.Errorf("count open items: %w", err))
	}
	if n == 0 {
		return Signal{Level: LevelOK, Why: "none"}, nil
	}
	s := Signal{Level: LevelCheck, Why: "open", Count: n, Since: oldest.UTC(), Age: g.clock.Now().Sub(*oldest)}
	if s.Age > heldTooLong {
		s.Level, s.Why, s.Since = LevelAct, "waiting", oldest.Add(heldTooLong).UTC()
	}
	s.WhyArgs = map[string]any{"hours": int64(heldTooLong / time.Hour), "capped": n >= countMost}
	return s, nil
}

// inFlightSignal watches what has been sent and not answered for, and calls
// what nobody can tell any more by name.
func (g *Gate) inFlightSignal(ctx context.Context, i Integration) (Signal, error) {
	now := g.clock.Now()
	var inFlight, stale, uncertain int64
	var oldest, uncertainSince *time.Time
	var names []int64
	err := g.pool.QueryRow(ctx, `
		with flying as (
			select reserved_at from reservations where integration = $1 and state = 'in_flight' order by reserved_at limit $3
		), doubtful as (
			select reserved_at, mutation_id from reservations where integration = $1 and state in ('unknown', 'manual')
			order by reserved_at limit $3
		)
		select (select count(*) from flying), (select count(*) from flying where reserved_at < $2), (select min(reserved_at) from flying),
		       (select count(*) from doubtful), (select min(reserved_at) from doubtful),
		       array(select mutation_id from doubtful order by reserved_at, mutation_id limit $4)`,
		i.ID, now.Add(-g.cfg.StaleAfter), countMost, namesMost).
		Scan(&inFlight, &stale, &oldest, &uncertain, &uncertainSince, &names)
	if err != nil {
		return Signal{}, storeError(fmt.Errorf("look at rows in flight: %w", err))
	}
	s := Signal{Level: LevelOK, Why: "none", Count: inFlight}
	if oldest != nil {
		s.Why, s.Age, s.Since = "moving", now.Sub(*oldest), time.Time{}
	}
	switch {
	case s.Age > g.cfg.AlertAfter:
		s.Level, s.Why, s.Count, s.Since = LevelAct, "stuck", stale, oldest.Add(g.cfg.AlertAfter).UTC()
	case uncertain > 0:
		s.Level, s.Why, s.Count, s.Since, s.Age = LevelAct, "uncertain", uncertain, uncertainSince.UTC(), now.Sub(*uncertainSince)
	case stale > 0:
		s.Level, s.Why, s.Count, s.Since = LevelCheck, "stale", stale, oldest.Add(g.cfg.StaleAfter).UTC()
	}
	s.WhyArgs = map[string]any{
		"in_flight": inFlight, "stale": stale, "uncertain": uncertain, "names": mutationNames(names),
		"stale_minutes": int64(g.cfg.StaleAfter / time.Minute), "alert_minutes": int64(g.cfg.AlertAfter / time.Minute),
	}
	return s, nil
}

func mutationNames(ids []int64) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = mutationName(id)
	}
	return strings.Join(names, ", ")
}

// pairsSignal is red while a pair waits for a verdict. No pairs mean nothing
// where no scan has looked.
func (g *Gate) pairsSignal(ctx context.Context, i Integration) (Signal, error) {
	var n int64
	var oldest, scanned *time.Time
	err := g.pool.QueryRow(ctx, `
		select count(*), min(found_at), (select pairs_at from integrations where id = $1) from (
			select found_at from hash_pairs where integration = $1 and state = 'open' order by id limit $2
		) open`, i.ID, countMost).Scan(&n, &oldest, &scanned)
	if err != nil {
		return Signal{}, storeError(fmt.Errorf("count open pairs: %w", err))
	}
	now := g.clock.Now()
	switch {
	case n > 0:
		return Signal{Level: LevelAct, Why: "open", Count: n, Since: oldest.UTC(), WhyArgs: map[string]any{"capped": n >= countMost}}, nil
	case scanned == nil:
		return Signal{Level: LevelNoData, Why: "never_scanned"}, nil
	}
	s := Signal{Level: LevelOK, Why: "none", Age: now.Sub(*scanned)}
	if s.Age > scanTooOld {
		s.Level, s.Why, s.Since = LevelNoData, "scan_late", scanned.Add(scanTooOld).UTC()
	}
	s.WhyArgs = map[string]any{"hours": int64(scanTooOld / time.Hour)}
	return s, nil
}

// replaySignal is the share of repeats among all that was judged in a day:
// zero means a broken key, a fifth means that an upstream misbehaves (incident
// 2). In shadow a repeat is forwarded too, so it is judged once and counted in
// the forwards.
func (g *Gate) replaySignal(ctx context.Context, i Integration) (Signal, error) {
	if i.Mode == ModeOff {
		return Signal{Level: LevelNoData, Why: "off"}, nil
	}
	counts := map[string]int64{}
	rows, err := collect(ctx, g.pool, "read the counters", pgx.RowToStructByPos[struct {
		Name string
		N    int64
	}], `select name, sum(n)::bigint from counters where integration = $1 and bucket > $2 group by name`,
		i.ID, g.clock.Now().Add(-replayWindow))
	if err != nil {
		return Signal{}, err
	}
	for _, r := range rows {
		counts[r.Name] = r.N
	}
	judged := counts[countForward]
	if i.Mode == ModeEnforce {
		judged += counts[countDrop] + counts[countQuarantine]
	}
	return replayLevel(counts[countReplay], judged), nil
}

func replayLevel(replays, judged int64) Signal {
	s := Signal{Count: replays, WhyArgs: map[string]any{"replays": replays, "mutations": judged, "at_least": int64(replayAtLeast)}}
	if judged < replayAtLeast {
		s.Level, s.Why = LevelNoData, "too_few"
		return s
	}
	s.Ratio = float64(replays) / float64(judged)
	switch {
	case s.Ratio >= replayBroken:
		s.Level, s.Why = LevelAct, "misbehaving"
	case s.Ratio > replayHigh:
		s.Level, s.Why = LevelCheck, "above_band"
	case s.Ratio < replayLow:
		s.Level, s.Why = LevelCheck, "below_band"
	default:
		s.Level, s.Why = LevelOK, "in_band"
	}
	return s
}

// clockSignal compares the clocks that decide what is late (incident 1). The
// clock of a recorded trace has nothing to be compared with.
func (g *Gate) clockSignal(ctx context.Context, _ Integration) (Signal, error) {
	reader, ok := g.clock.(ClockReader)
	if !ok {
		return Signal{Level: LevelNoData, Why: "recorded"}, nil
	}
	r, err := reader.Compare(ctx)
	if err != nil {
		return Signal{}, err
	}
	return clockLevel(r), nil
}

func clockLevel(r ClockReading) Signal {
	s := Signal{Level: LevelOK, Why: "in_step", Age: r.DatabaseOffset.Abs(), WhyArgs: map[string]any{
		"offset_ms": r.DatabaseOffset.Milliseconds(), "step_ms": r.WallStep.Milliseconds(),
	}}
	name := "offset"
	if r.WallStep.Abs() > r.DatabaseOffset.Abs() {
		name, s.Age = "step", r.WallStep.Abs()
	}
	switch {
	case s.Age > clockBroken:
		s.Level, s.Why = LevelAct, "far_"+name
	case s.Age > clockSlight:
		s.Level, s.Why = LevelCheck, "slight_"+name
	}
	return s
}
