package snapshots

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CheckInvariants compares the table with the store and the audit record, and
// returns everything that must never be, whatever was interrupted: a gap or a
// fork in the chain, a row that differs from its manifest, a snapshot without
// its one audit record, more than one manifest that no row knows.
func (s *Service) CheckInvariants(ctx context.Context, integration string) error {
	rows, err := s.pool.Query(ctx, `
		select `+snapshotColumns+` from snapshots where integration = $1 order by seq`, integration)
	if err != nil {
		return fmt.Errorf("check snapshots: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanSnapshot)
	if err != nil {
		return fmt.Errorf("check snapshots: %w", err)
	}
	var errs []error
	before := snapshotRow{Snapshot: Snapshot{Integration: integration}}
	for _, r := range list {
		errs = append(errs, s.checkRow(ctx, before, r))
		before = r
	}
	errs = append(errs, s.checkStore(ctx, before), s.checkAudit(ctx, integration))
	return errors.Join(errs...)
}

func (s *Service) checkRow(ctx context.Context, before, r snapshotRow) error {
	if r.Seq != before.Seq+1 {
		return fmt.Errorf("snapshot %d follows %d", r.Seq, before.Seq)
	}
	if r.PrevHash != before.ManifestHash || r.LastMutation < before.LastMutation || r.AuditPos < before.AuditPos {
		return fmt.Errorf("snapshot %d does not continue %d", r.Seq, before.Seq)
	}
	m, err := s.sealedManifest(ctx, r)
	if err != nil {
		return err
	}
	want := r
	want.describe(m, nil)
	want.ManifestHash = r.ManifestHash
	if want.TakenAt.Equal(r.TakenAt) {
		want.TakenAt = r.TakenAt
	}
	if want != r {
		return fmt.Errorf("snapshot %d: the row differs from its manifest", r.Seq)
	}
	return nil
}

// checkStore allows one manifest behind the head: that of a writer between
// store and table.
func (s *Service) checkStore(ctx context.Context, head snapshotRow) error {
	keys, err := BucketReader(s.store).Keys(ctx, manifestPrefix(head.Integration))
	if err != nil {
		return err
	}
	for _, key := range keys {
		if seq, ok := manifestSeq(head.Integration, key); !ok || seq > head.Seq+1 {
			return fmt.Errorf("the store has %s, and the head is %d", key, head.Seq)
		}
	}
	return nil
}

func (s *Service) checkAudit(ctx context.Context, integration string) error {
	var odd int64
	err := s.pool.QueryRow(ctx, `
		select count(*) from (
			select s.seq from snapshots s
			left join audit_records a on a.action = 'snapshot.taken' and a.object = 'S-' || s.integration || '-' || s.seq
			where s.integration = $1
			group by s.seq having count(a.id) <> 1) o`, integration).Scan(&odd)
	if err != nil {
		return fmt.Errorf("check the snapshots' audit records: %w", err)
	}
	if odd > 0 {
		return fmt.Errorf("%d snapshots have no audit record of their own, or several", odd)
	}
	return nil
}
