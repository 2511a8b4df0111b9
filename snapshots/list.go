package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
)

// maxList bounds a page of snapshots.
const maxList = 500

// snapshotRow is one row of the table: the snapshot and the versions that the
// store gave its objects.
type snapshotRow struct {
	Snapshot
	manifestVersion string
	bodyVersion     string
}

const snapshotColumns = `integration, seq, taken_at, manifest_key, manifest_version, manifest_hash, prev_hash,
	body_key, body_version, body_hash, body_size, entities, last_mutation, audit_pos, audit_hash,
	retain_until, verified_at, verify_error`

func scanSnapshot(row pgx.CollectableRow) (snapshotRow, error) {
	var r snapshotRow
	var manifest, prev, body, auditHash []byte
	var verified *time.Time
	err := row.Scan(&r.Integration, &r.Seq, &r.TakenAt, &r.ManifestKey, &r.manifestVersion, &manifest, &prev,
		&r.BodyKey, &r.bodyVersion, &body, &r.BodySize, &r.Entities, &r.LastMutation, &r.AuditPos, &auditHash,
		&r.RetainUntil, &verified, &r.VerifyError)
	if err != nil {
		return r, err
	}
	copy(r.ManifestHash[:], manifest)
	copy(r.PrevHash[:], prev)
	copy(r.BodyHash[:], body)
	copy(r.AuditHash[:], auditHash)
	r.TakenAt, r.RetainUntil = r.TakenAt.UTC(), r.RetainUntil.UTC()
	if verified != nil {
		r.VerifiedAt = verified.UTC()
	}
	return r, nil
}

// one reads the first row of a query, or gate.ErrNotFound.
func (s *Service) one(ctx context.Context, sql string, args pgx.NamedArgs) (snapshotRow, error) {
	rows, err := s.pool.Query(ctx, `select `+snapshotColumns+` from snapshots `+sql, args)
	if err != nil {
		return snapshotRow{}, fmt.Errorf("read snapshots: %w", err)
	}
	r, err := pgx.CollectOneRow(rows, scanSnapshot)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, fmt.Errorf("no such snapshot: %w", gate.ErrNotFound)
	}
	if err != nil {
		return r, fmt.Errorf("read snapshots: %w", err)
	}
	return r, nil
}

// row is one snapshot, or gate.ErrNotFound.
func (s *Service) row(ctx context.Context, integration string, seq int64) (snapshotRow, error) {
	return s.one(ctx, `where integration = @integration and seq = @seq`,
		pgx.NamedArgs{"integration": integration, "seq": seq})
}

// head is the newest recorded snapshot; the zero row, with the integration's
// name, before the first.
func (s *Service) head(ctx context.Context, integration string) (snapshotRow, error) {
	r, err := s.one(ctx, `where integration = @integration order by seq desc limit 1`,
		pgx.NamedArgs{"integration": integration})
	if errors.Is(err, gate.ErrNotFound) {
		r.Integration = integration
		return r, nil
	}
	return r, err
}

// Get is one snapshot, or gate.ErrNotFound.
func (s *Service) Get(ctx context.Context, integration string, seq int64) (Snapshot, error) {
	r, err := s.row(ctx, integration, seq)
	return r.Snapshot, err
}

// List is a page of snapshots, newest first: those with a sequence number below
// beforeSeq, 0 for the first page. A limit outside 1 to 500 is 50.
func (s *Service) List(ctx context.Context, integration string, beforeSeq int64, limit int) ([]Snapshot, error) {
	if limit < 1 || limit > maxList {
		limit = 50
	}
	rows, err := s.pool.Query(ctx, `
		select `+snapshotColumns+` from snapshots
		where integration = @integration and (@before = 0 or seq < @before)
		order by seq desc limit @limit`,
		pgx.NamedArgs{"integration": integration, "before": beforeSeq, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Snapshot, error) {
		r, err := scanSnapshot(row)
		return r.Snapshot, err
	})
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return list, nil
}

// Before is the newest snapshot taken before t on the gate's clock, or
// gate.ErrNotFound.
func (s *Service) Before(ctx context.Context, integration string, t time.Time) (Snapshot, error) {
	r, err := s.one(ctx, `
		where integration = @integration and taken_at < @t
		order by taken_at desc, seq desc limit 1`, pgx.NamedArgs{"integration": integration, "t": t})
	return r.Snapshot, err
}

// LastGood is the newest snapshot without a finding that does not yet hold the
// earliest repeat: the second mutation of a hash pair that is open or judged a
// duplicate. That pair is the reason. Where no pair is, it is the newest
// snapshot without a finding, with the zero Pair. gate.ErrNotFound, beside the
// pair, when no snapshot is that old.
func (s *Service) LastGood(ctx context.Context, integration string) (Snapshot, gate.Pair, error) {
	pairs, err := s.gate.Pairs(ctx, gate.PairFilter{
		Integration: integration, States: []gate.PairState{gate.PairOpen, gate.PairDuplicate}, Limit: -1,
	})
	if err != nil {
		return Snapshot{}, gate.Pair{}, fmt.Errorf("find the earliest repeat: %w", err)
	}
	var reason gate.Pair
	for _, p := range pairs {
		if reason.ID == 0 || p.Second.ID < reason.Second.ID {
			reason = p
		}
	}
	r, err := s.one(ctx, `
		where integration = @integration and verify_error = '' and (@repeat = 0 or last_mutation < @repeat)
		order by seq desc limit 1`, pgx.NamedArgs{"integration": integration, "repeat": reason.Second.ID})
	return r.Snapshot, reason, err
}
