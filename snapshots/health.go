package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
	"sluis/gate/audit"
)

// The limits of the snapshot signal. A snapshot is due each 15 minutes and a
// verification each day; one of either may fail without alarm.
const (
	lateAfter       = 20 * time.Minute
	overdueAfter    = 60 * time.Minute
	unverifiedAfter = 48 * time.Hour
)

// VerifyChain re-reads every manifest and body of the store with the public
// key, compares the end of the chain with the recorded head, and records what
// it found with each snapshot and in the audit record. progress, where set, is
// called after each manifest. A report with problems is not an error.
// gate.ErrNotFound: no such integration.
func (s *Service) VerifyChain(ctx context.Context, by gate.Actor, integration string, progress func(done, total int)) (Report, error) {
	if _, err := s.gate.Integration(ctx, integration); err != nil {
		return Report{}, fmt.Errorf("verify a chain: %w", err)
	}
	var broken *BrokenError
	head, err := s.recoverHead(ctx, by, integration)
	if errors.As(err, &broken) { // the pass below finds it, and more
		head, err = s.head(ctx, integration)
	}
	if err != nil {
		return Report{}, fmt.Errorf("verify the chain of %s: %w", integration, err)
	}
	opts := VerifyOptions{Integration: integration, Now: s.realNow(), Progress: progress}
	if head.Seq > 0 {
		opts.Head = &Head{Seq: head.Seq, Hash: head.ManifestHash}
	}
	report, err := verifyChain(ctx, BucketReader(s.store), s.keys.verifier, opts)
	if err != nil {
		return report, fmt.Errorf("verify the chain of %s: %w", integration, err)
	}
	if err := s.recordReport(ctx, by, head.Seq, report); err != nil {
		return report, err
	}
	s.gate.Touch(integration, "snapshots")
	s.gate.Touch(integration, "signals")
	return report, nil
}

// recordReport notes the outcome with every snapshot up to head: its own
// problems, or none. A problem beyond the head is noted with the head.
func (s *Service) recordReport(ctx context.Context, by gate.Actor, head int64, report Report) error {
	var seqs []int64
	var texts []string
	for _, p := range report.Problems {
		seqs = append(seqs, max(1, min(p.Seq, head)))
		texts = append(texts, string(p.Kind)+": "+p.What)
	}
	now := s.clock.Now()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			update snapshots s set verified_at = @now, verify_error = coalesce(p.texts, '')
			from (select seq from snapshots where integration = @integration and seq <= @head) k
			left join (
				select seq, string_agg(text, '; ' order by n) as texts
				from unnest(@seqs::bigint[], @texts::text[]) with ordinality as u (seq, text, n)
				group by seq) p on p.seq = k.seq
			where s.integration = @integration and s.seq = k.seq`,
			pgx.NamedArgs{"now": now, "integration": report.Integration, "head": head, "seqs": seqs, "texts": texts})
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, entry(now, by, report.Integration, "snapshot.verified", snapshotName(report.Integration, head), map[string]any{
			"good": report.Good(), "checked": report.Checked, "problems": len(report.Problems),
			"chain": report.Chain, "signatures": report.Signatures, "bodies": report.Bodies,
			"locks": report.Locks, "tail": report.Tail,
		}))
	})
	if err != nil {
		return fmt.Errorf("record the verification of %s: %w", report.Integration, err)
	}
	return nil
}

// health is what the signal is judged by.
type health struct {
	taken    *time.Time // of the newest snapshot
	verified *time.Time // the newest verification
	first    *time.Time // of the oldest snapshot
	head     int64
	broken   *int64 // the first snapshot with a finding
}

// Signal is the dashboard's row on snapshots: the age of the newest, and
// whether the last verification found the chain whole. Why is one of fresh,
// late, overdue, none, broken and unverified.
func (s *Service) Signal(ctx context.Context, integration string) (gate.Signal, error) {
	i, err := s.gate.Integration(ctx, integration)
	if err != nil {
		return gate.Signal{}, fmt.Errorf("snapshot signal: %w", err)
	}
	var h health
	err = s.pool.QueryRow(ctx, `
		select (select taken_at from snapshots where integration = $1 order by seq desc limit 1),
			(select coalesce(max(seq), 0) from snapshots where integration = $1),
			(select taken_at from snapshots where integration = $1 order by seq limit 1),
			(select verified_at from snapshots where integration = $1 and verified_at is not null order by seq desc limit 1),
			(select min(seq) from snapshots where integration = $1 and verify_error <> '')`,
		integration).Scan(&h.taken, &h.head, &h.first, &h.verified, &h.broken)
	if err != nil {
		return gate.Signal{}, fmt.Errorf("snapshot signal: %w", err)
	}
	return h.signal(s.clock.Now(), i.UpdatedAt), nil
}

// signal judges. An integration without a snapshot has until overdueAfter
// from since to get its first.
func (h health) signal(now, since time.Time) gate.Signal {
	sig := gate.Signal{ID: gate.SignalSnapshot, Level: gate.LevelOK, Why: "fresh", CheckedAt: now, UpTo: h.head,
		WhyArgs: map[string]any{"Seq": h.head}}
	if h.taken == nil {
		sig.Level, sig.Why, sig.Since, sig.Age = gate.LevelCheck, "none", since, now.Sub(since)
		if sig.Age > overdueAfter {
			sig.Level = gate.LevelAct
		}
		return sig
	}
	sig.Age = now.Sub(*h.taken)
	checked := *h.first
	if h.verified != nil {
		checked = *h.verified
	}
	switch {
	case h.broken != nil:
		sig.Level, sig.Why, sig.Since = gate.LevelAct, "broken", checked
		sig.WhyArgs["Seq"] = *h.broken
	case sig.Age >= overdueAfter:
		sig.Level, sig.Why, sig.Since = gate.LevelAct, "overdue", h.taken.Add(overdueAfter)
	case sig.Age >= lateAfter:
		sig.Level, sig.Why, sig.Since = gate.LevelCheck, "late", h.taken.Add(lateAfter)
	case now.Sub(checked) >= unverifiedAfter:
		sig.Level, sig.Why, sig.Since = gate.LevelCheck, "unverified", checked.Add(unverifiedAfter)
	}
	return sig
}
