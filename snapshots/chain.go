package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sluis/gate"
	"sluis/gate/audit"
	"sluis/snapshots/objectstore"
)

// compliance is the only lock mode that nobody can lift.
const compliance = "COMPLIANCE"

// BrokenError says that stored evidence is not what was sealed. A person has
// to look: nothing here repairs it.
type BrokenError struct {
	Seq  int64
	Kind ProblemKind
	What string
}

// Error names the snapshot and what is wrong with it.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("snapshot %d: %s: %s", e.Seq, e.Kind, e.What)
}

// recoverHead brings the table up to the store and returns the head: a
// manifest behind the recorded head is a snapshot whose writer stopped between
// the store and the table, or another leader's that is about to record it.
func (s *Service) recoverHead(ctx context.Context, by gate.Actor, integration string) (snapshotRow, error) {
	head, err := s.head(ctx, integration)
	if err != nil {
		return head, err
	}
	for {
		key := manifestKey(integration, head.Seq+1)
		// Get before Head: the usual answer, that there is none, costs one look-up.
		if _, err := s.store.Get(ctx, key, ""); errors.Is(err, objectstore.ErrNotFound) {
			return head, nil
		} else if err != nil {
			return head, fmt.Errorf("look for snapshot %d: %w", head.Seq+1, err)
		}
		if head, err = s.adoptNext(ctx, by, head); err != nil {
			return head, err
		}
	}
}

// adoptNext adopts the manifest that the store has behind head.
func (s *Service) adoptNext(ctx context.Context, by gate.Actor, head snapshotRow) (snapshotRow, error) {
	receipt, err := s.store.Head(ctx, manifestKey(head.Integration, head.Seq+1))
	if err != nil {
		return head, fmt.Errorf("look at snapshot %d: %w", head.Seq+1, err)
	}
	return s.adopt(ctx, by, head, receipt.VersionID)
}

// adopt makes the manifest behind head, which the store has in that version,
// the new head: it is read back and checked, its objects' locks are read back
// and made good where they fall short, and its row is recorded. Take uses it
// for its own manifest just as recovery does for one that it finds.
func (s *Service) adopt(ctx context.Context, by gate.Actor, head snapshotRow, version string) (snapshotRow, error) {
	seq := head.Seq + 1
	r := snapshotRow{manifestVersion: version}
	r.Integration, r.Seq, r.ManifestKey = head.Integration, seq, manifestKey(head.Integration, seq)
	raw, err := s.object(ctx, seq, r.ManifestKey, version)
	if err != nil {
		return head, err
	}
	m, err := s.nextManifest(head, raw)
	if err != nil {
		return head, err
	}
	r.describe(m, raw)
	if m.Body.Key == head.BodyKey {
		r.bodyVersion = head.bodyVersion // checked when head was adopted
	} else if r.bodyVersion, err = s.checkBody(ctx, m); err != nil {
		return head, err
	}
	if r.RetainUntil, err = s.ensureLock(ctx, seq, r.ManifestKey, version, m.RetainUntil); err != nil {
		return head, err
	}
	if _, err = s.ensureLock(ctx, seq, r.BodyKey, r.bodyVersion, m.RetainUntil); err != nil {
		return head, err
	}
	if err := s.record(ctx, by, r); err != nil {
		return head, err
	}
	s.gate.Touch(r.Integration, "snapshots")
	return r, nil
}

// nextManifest reads a manifest that has to be the one behind head.
func (s *Service) nextManifest(head snapshotRow, raw []byte) (Manifest, error) {
	seq := head.Seq + 1
	m, err := openManifest(raw, s.keys.verifier)
	var unsigned *signatureError
	switch {
	case errors.As(err, &unsigned):
		return m, &BrokenError{seq, ProblemSignature, err.Error()}
	case err != nil:
		return m, &BrokenError{seq, ProblemChain, err.Error()}
	case m.Integration != head.Integration || m.Seq != seq:
		return m, &BrokenError{seq, ProblemChain, fmt.Sprintf("its place holds %s %d", m.Integration, m.Seq)}
	case m.Prev != head.ManifestHash:
		return m, &BrokenError{seq, ProblemChain, "it does not follow the recorded head"}
	case m.Mutations.Last < head.LastMutation || m.Body.Key != bodyKey(m.Integration, m.Body.ContentHash):
		return m, &BrokenError{seq, ProblemChain, "its positions contradict the snapshot before it"}
	}
	return m, nil
}

// describe fills a row from its manifest.
func (r *snapshotRow) describe(m Manifest, raw []byte) {
	r.TakenAt, r.ManifestHash, r.PrevHash = m.TakenAt, hashOf(raw), m.Prev
	r.BodyKey, r.BodyHash, r.BodySize, r.Entities = m.Body.Key, m.Body.ContentHash, m.Body.StoredSize, m.Entities
	r.LastMutation, r.AuditPos, r.AuditHash = m.Mutations.Last, m.Audit.Pos, m.Audit.Hash
}

// checkBody reads a manifest's body back whole and returns its version.
func (s *Service) checkBody(ctx context.Context, m Manifest) (string, error) {
	receipt, err := s.store.Head(ctx, m.Body.Key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return "", &BrokenError{m.Seq, ProblemBody, "the store has no " + m.Body.Key}
	}
	if err != nil {
		return "", fmt.Errorf("look at the body of snapshot %d: %w", m.Seq, err)
	}
	stored, err := s.object(ctx, m.Seq, m.Body.Key, receipt.VersionID)
	if err != nil {
		return "", err
	}
	if what := checkContent(readContent(stored), m); what != "" {
		return "", &BrokenError{m.Seq, ProblemBody, what}
	}
	return receipt.VersionID, nil
}

// object reads one recorded version. One that is gone is a *BrokenError.
func (s *Service) object(ctx context.Context, seq int64, key, version string) ([]byte, error) {
	raw, err := s.store.Get(ctx, key, version)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, &BrokenError{seq, ProblemChain, "the store no longer has " + key}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return raw, nil
}

// sealedManifest reads the manifest of a recorded snapshot and checks it
// against its row. A *BrokenError says what does not fit.
func (s *Service) sealedManifest(ctx context.Context, r snapshotRow) (Manifest, error) {
	raw, err := s.object(ctx, r.Seq, r.ManifestKey, r.manifestVersion)
	if err != nil {
		return Manifest{}, err
	}
	if hashOf(raw) != r.ManifestHash {
		return Manifest{}, &BrokenError{r.Seq, ProblemChain, "the manifest is not the one recorded"}
	}
	before := snapshotRow{Snapshot: Snapshot{Integration: r.Integration, Seq: r.Seq - 1, ManifestHash: r.PrevHash}}
	return s.nextManifest(before, raw)
}

// ensureLock reads a version's lock back and extends one that falls short,
// which is what a writer leaves that stopped between the object and its lock.
// A lock whose time is over needs nothing.
func (s *Service) ensureLock(ctx context.Context, seq int64, key, version string, need time.Time) (time.Time, error) {
	for try := 0; ; try++ {
		mode, until, err := s.store.Retention(ctx, key, version)
		if err != nil {
			return until, fmt.Errorf("read the lock of %s: %w", key, err)
		}
		if locked(mode, until, need) || !need.After(s.realNow()) {
			return until, nil
		}
		if try > 0 {
			return until, &BrokenError{seq, ProblemLock, fmt.Sprintf("the store does not lock %s until %s", key, need.Format(time.RFC3339))}
		}
		if err := s.store.Extend(ctx, key, version, need); err != nil {
			return until, fmt.Errorf("lock %s: %w", key, err)
		}
	}
}

// locked reports whether a lock covers need.
func locked(mode string, until, need time.Time) bool {
	return mode == compliance && !until.Before(need)
}

// record commits a snapshot's row with its audit record. Where another process
// recorded the same manifest first, it changes nothing.
func (s *Service) record(ctx context.Context, by gate.Actor, r snapshotRow) error {
	now := s.clock.Now()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			insert into snapshots (integration, seq, taken_at, manifest_key, manifest_version, manifest_hash, prev_hash,
				body_key, body_version, body_hash, body_size, entities, last_mutation, audit_pos, audit_hash, retain_until)
			values (@integration, @seq, @taken_at, @manifest_key, @manifest_version, @manifest_hash, @prev_hash,
				@body_key, @body_version, @body_hash, @body_size, @entities, @last_mutation, @audit_pos, @audit_hash, @retain_until)
			on conflict (integration, seq) do nothing`, r.args())
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
		return audit.Append(ctx, tx, entry(now, by, r.Integration, "snapshot.taken", snapshotName(r.Integration, r.Seq), map[string]any{
			"manifest": Hash(r.ManifestHash).String(), "body": Hash(r.BodyHash).String(), "entities": r.Entities,
			"last_mutation": r.LastMutation, "taken_at": r.TakenAt.Format(time.RFC3339Nano),
			"retain_until": r.RetainUntil.Format(time.RFC3339), "version": r.manifestVersion,
		}))
	})
	if err != nil {
		return fmt.Errorf("record snapshot %d: %w", r.Seq, err)
	}
	return nil
}

func (r snapshotRow) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"integration": r.Integration, "seq": r.Seq, "taken_at": r.TakenAt,
		"manifest_key": r.ManifestKey, "manifest_version": r.manifestVersion,
		"manifest_hash": r.ManifestHash[:], "prev_hash": r.PrevHash[:],
		"body_key": r.BodyKey, "body_version": r.bodyVersion, "body_hash": r.BodyHash[:], "body_size": r.BodySize,
		"entities": r.Entities, "last_mutation": r.LastMutation,
		"audit_pos": r.AuditPos, "audit_hash": r.AuditHash[:], "retain_until": r.RetainUntil,
	}
}
