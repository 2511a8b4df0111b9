package gate_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluis/gate"
	"sluis/gate/gatetest"
)

// seedRows is enough for the planner to tell an index from a whole table.
const seedRows = 20_000

// seedSQL fills every table that grows, as a year of use would.
const seedSQL = `
	insert into events (integration, account, event_id, received_at, state)
	select 'care', 'home', 'old-' || n, $1::timestamptz - n * interval '1 minute', 'applied' from generate_series(1, $2::int) n;
	insert into deliveries (integration, event_seq, received_at, payload, payload_hash, mode, disposition, handed_on)
	select 'care', seq, received_at, '{}', sha256('{}'), 'enforce', 'stored', true from events;
	insert into mutations (integration, natural_key, account, event_id, effect, agent, run, op, entity_type, entity_id, subject, body, fingerprint,
		received_at, mode, decision, reason, forwarded)
	select 'care', sha256(('k' || n)::bytea), 'home', 'old-' || n / 3, 'e' || n, 'planner', 'r' || n / 3, 'update', 'visit', 'V-' || n / 5, 'C-' || n % 900,
		'{}', sha256((n / 2)::text::bytea), $1::timestamptz - ($2 - n) * interval '1 minute', 'enforce', 'forward', '', true
	from generate_series(1, $2::int) n;
	insert into reservations (key, integration, natural_key, mutation_id, state, attempt, fence, reserved_at, settled_at, settled_by, external_ref)
	select natural_key, 'care', natural_key, id, s, 1, 1, received_at, case when s = 'committed' then received_at end,
		case when s = 'committed' then 'planner' end, entity_id
	from mutations, lateral (select case id % 5000 when 0 then 'in_flight' when 1 then 'unknown' else 'committed' end as s) x;
	insert into entities (integration, type, id, version, state, subject, last_mutation, updated_at)
	select 'care', 'visit', 'V-' || n, 1, '{}', 'C-' || n % 900, n, $1 from generate_series(1, $2::int) n;
	insert into decisions (integration, at, kind, mode, decision, reason, enforced, account, event_id, mutation_id)
	select 'care', received_at, 'mutation', 'enforce', case when id % 10 = 0 then 'quarantine' else 'drop' end, 'replay', true, account, event_id, id from mutations;
	insert into quarantine_items (integration, kind, mutation_id, reason, subject, event_id, entity_id, state, opened_at, decided_at, decided_by)
	select 'care', 'mutation', id, case when id % 1000 = 7 then 'frozen' else 'skew' end, subject, event_id, entity_id,
		case when id % 2000 = 3 then 'open' when id % 3 = 0 then 'released' else 'rejected' end, received_at,
		case when id % 2000 = 3 then null else received_at end, case when id % 2000 = 3 then null else 'anna' end from mutations;
	insert into hash_pairs (integration, first_mutation, second_mutation, fingerprint, subject, found_at, state, decided_at, decided_by)
	select 'care', id, id + 1, fingerprint, subject, received_at, case when id % 2000 = 3 then 'open' else 'distinct' end,
		case when id % 2000 = 3 then null else received_at end, case when id % 2000 = 3 then null else 'anna' end from mutations where id < $2;
	insert into counters (integration, bucket, name, shard, n)
	select 'care', date_trunc('hour', $1::timestamptz) - n * interval '15 minutes', name, shard, 5
	from generate_series(1, 3000) n, unnest(array['forward', 'replay']) name, generate_series(0, 15) shard;
	insert into acknowledgements (integration, signal, upto, at, by) select 'care', 'drops', max(id) - 500, $1, 'anna' from decisions;
	update integrations set pairs_until = $2 - 20`

// statements records what a pool is asked.
type statements struct{ list []pgx.TraceQueryStartData }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.list = append(s.list, d)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func seed(t testing.TB, w *gatetest.World) {
	t.Helper()
	sql := strings.ReplaceAll(seedSQL, "$1", "'"+gatetest.Start.Format(time.RFC3339)+"'")
	sql = strings.ReplaceAll(sql, "$2", fmt.Sprint(seedRows))
	// Without triggers the foreign keys are not looked up one by one.
	if _, err := w.Pool.Exec(t.Context(), `set session_replication_role = replica; `+sql+`; reset session_replication_role`); err != nil {
		t.Fatalf("seed: %v", err)
	}
	if _, err := w.Pool.Exec(t.Context(), `analyze`); err != nil {
		t.Fatal(err)
	}
}

var (
	wholeTable = regexp.MustCompile(`Seq Scan on (\w+)`)
	passedOver = regexp.MustCompile(`Rows Removed by Filter: (\d+)`)
)

// small are the tables that do not grow with use.
var small = map[string]bool{"integrations": true, "acknowledgements": true, "tombstones": true, "agent_tokens": true, "audit_records_id_seq": true}

// TestNoReadScansAWholeTable asks Postgres for the plan of every statement of
// the reads, signals and decisions, over tables of seedRows.
func TestNoReadScansAWholeTable(t *testing.T) {
	w := gatetest.New(t, gate.ModeEnforce)
	seed(t, w)
	cfg := w.Pool.Config()
	seen := &statements{}
	cfg.ConnConfig.Tracer = seen
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	g := w.NewGate(func(c *gate.Config) { c.Pool = pool })
	readEverything(t, g)
	pool.Close()
	checked := 0
	for _, s := range seen.list {
		sql := strings.TrimSpace(s.SQL)
		switch strings.ToLower(strings.Fields(sql)[0]) {
		case "select", "with", "insert", "update", "(":
		default:
			continue
		}
		plan := explain(t, w, sql, s.Args)
		for _, m := range wholeTable.FindAllStringSubmatch(plan, -1) {
			if !small[m[1]] {
				t.Errorf("reads all of %s:\n%s\n%s", m[1], sql, plan)
			}
		}
		for _, m := range passedOver.FindAllStringSubmatch(plan, -1) {
			if n, err := strconv.Atoi(m[1]); err != nil || n > seedRows/20 {
				t.Errorf("walks past %s rows:\n%s\n%s", m[1], sql, plan)
			}
		}
		checked++
	}
	if checked < 40 {
		t.Errorf("only %d statements were seen", checked)
	}
}

// explain runs the statement, takes it back, and returns how it was run.
func explain(t *testing.T, w *gatetest.World, sql string, args []any) string {
	t.Helper()
	tx, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	rows, err := tx.Query(t.Context(), "explain (analyze) "+sql, args...)
	if err != nil {
		t.Fatalf("explain %s: %v", sql, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("explain %s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}

// readEverything calls each read and decision that pages wait for.
func readEverything(t *testing.T, g *gate.Gate) {
	t.Helper()
	ctx, ref := t.Context(), gate.EventRef{Account: "home", ID: "old-77"}
	var item gate.Item
	var pair gate.Pair
	steps := []struct {
		name string
		call func() error
	}{
		{"signals", func() error { _, err := g.Signals(ctx, gatetest.Care); return err }},
		{"mutation", func() error { _, err := g.Mutation(ctx, 77); return err }},
		{"mutations of an event", func() error { _, err := g.EventMutations(ctx, gatetest.Care, ref, 100); return err }},
		{"open reservations", func() error { _, err := g.OpenReservations(ctx, gatetest.Care, 50); return err }},
		{"mutations after", func() error { _, err := g.MutationsAfter(ctx, gatetest.Care, seedRows-500, 0, 100); return err }},
		{"mutations of ids", func() error { _, err := g.MutationsOf(ctx, gatetest.Care, []int64{1, 2, 3}); return err }},
		{"mutations of an entity", func() error { _, err := g.EntityMutations(ctx, gatetest.Care, "visit", "V-77", 0, 50); return err }},
		{"entity", func() error { _, err := g.Projected(ctx, gatetest.Care, "visit", "V-77"); return err }},
		{"search", func() error { _, err := g.SearchEntities(ctx, gatetest.Care, "V-77", 20); return err }},
		{"deliveries", func() error { _, err := g.Deliveries(ctx, gatetest.Care, ref); return err }},
		{"delivery", func() error { _, err := g.Delivery(ctx, 77); return err }},
		{"drops", func() error { _, err := g.Drops(ctx, gatetest.Care, 0, 50); return err }},
		{"drops further on", func() error { _, err := g.Drops(ctx, gatetest.Care, seedRows/2, 50); return err }},
		{"next item", func() error { _, _, _, err := g.NextItem(ctx, gatetest.Care, 3); return err }},
		{"item", func() (err error) { item, err = g.Item(ctx, 2003); return err }},
		{"release", func() (err error) { item, err = g.Release(ctx, anna, item.ID, item.Version, "yes"); return err }},
		{"undo", func() (err error) { item, err = g.UndoRelease(ctx, anna, item.ID, item.Version); return err }},
		{"reject", func() (err error) { item, err = g.Reject(ctx, anna, item.ID, item.Version, "no"); return err }},
		{"sweep", func() error { return g.SweepReleases(ctx) }},
		{"pair", func() (err error) { pair, err = g.Pair(ctx, 77); return err }},
		{"verdict", func() error {
			_, err := g.JudgePair(ctx, anna, pair.ID, pair.Version, gate.PairDuplicate, "yes")
			return err
		}},
		{"scan", func() error { _, err := g.ScanPairs(ctx, anna, gatetest.Care); return err }},
		{"acknowledge", func() error { return g.Acknowledge(ctx, anna, gatetest.Care, gate.SignalDrops, seedRows-1, "") }},
	}
	for _, f := range []gate.ItemFilter{{}, {States: []gate.ItemState{gate.ItemOpen}}, {States: []gate.ItemState{gate.ItemReleased}, Before: seedRows / 2}, {Reason: gate.ReasonFrozen}, {Search: "C-77"}} {
		f.Integration = gatetest.Care
		steps = append(steps, struct {
			name string
			call func() error
		}{fmt.Sprintf("items %+v", f), func() error { _, err := g.Items(ctx, f); return err }})
	}
	for _, f := range []gate.PairFilter{{}, {States: []gate.PairState{gate.PairOpen}}, {AfterSeq: seedRows - 100}} {
		f.Integration = gatetest.Care
		steps = append(steps, struct {
			name string
			call func() error
		}{fmt.Sprintf("pairs %+v", f), func() error { _, err := g.Pairs(ctx, f); return err }})
	}
	for _, s := range steps {
		start := time.Now()
		if err := s.call(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		t.Logf("%-60s %s", s.name, time.Since(start).Round(10*time.Microsecond))
	}
}
