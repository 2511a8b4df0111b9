package snapshots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluis/gate"
	"sluis/snapshots/objectstore"
)

// bodyMargin is how much longer than its manifest a body is locked, so that
// the snapshots of an unchanged world share one body for a day.
const bodyMargin = 24 * time.Hour

// errOvertaken: another writer took the sequence number first.
var errOvertaken = errors.New("another writer was faster")

// Take seals the world of an integration as it is now and returns the new
// head. Of writers at the same time, in one process or many, each gets a
// sequence number of its own, and the chain does not fork.
//
// The order of writes, each of which may fail before or after it took effect:
//
//  1. the body, under a key that is its content: an orphan is harmless and is
//     used again by the next snapshot of the same state;
//  2. the manifest, if its key is free: from here on the snapshot exists;
//  3. the locks of both, read back and made good;
//  4. the row and the audit record, in one transaction.
//
// Whoever takes the next snapshot first records what a writer that stopped
// after 2 left behind. An error therefore means that the snapshot may exist;
// the next Take, or VerifyChain, finds out. A *BrokenError means that what the
// store has in the next snapshot's place is none that can be adopted: no
// snapshot is taken beside it. gate.ErrNotFound: no such integration.
func (s *Service) Take(ctx context.Context, by gate.Actor, integration string) (Snapshot, error) {
	if _, err := s.gate.Integration(ctx, integration); err != nil {
		return Snapshot{}, fmt.Errorf("take a snapshot: %w", err)
	}
	for {
		r, err := s.takeNext(ctx, by, integration)
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil {
			return Snapshot{}, fmt.Errorf("take a snapshot of %s: %w", integration, err)
		}
		return r.Snapshot, nil
	}
}

// takeNext tries for the number behind the head, or says errOvertaken. Each
// loss means that another writer got ahead, so somebody always does.
func (s *Service) takeNext(ctx context.Context, by gate.Actor, integration string) (snapshotRow, error) {
	head, err := s.recoverHead(ctx, by, integration)
	if err != nil {
		return head, err
	}
	c, err := s.capture(ctx, integration, head.LastMutation)
	if err != nil {
		return head, err
	}
	until := s.retainUntil()
	body, err := s.putBody(ctx, head, c.body, until)
	if err != nil {
		return head, err
	}
	m := Manifest{
		Audit: c.audit, Body: body, Entities: c.body.entities, Format: manifestFormat,
		Integration: integration, Mutations: c.position, Prev: head.ManifestHash,
		RetainUntil: until, Seq: head.Seq + 1,
		TakenAt: s.clock.Now().UTC().Truncate(time.Microsecond), // what the column holds
	}
	raw, err := m.seal(s.keys)
	if err != nil {
		return head, err
	}
	receipt, err := s.store.Put(ctx, manifestKey(integration, m.Seq), raw, until)
	if errors.Is(err, objectstore.ErrExists) {
		return head, errOvertaken
	}
	if err != nil {
		return head, fmt.Errorf("store manifest %d: %w", m.Seq, err)
	}
	return s.adopt(ctx, by, head, receipt.VersionID)
}

// retainUntil is when a snapshot's lock may end: in whole seconds, rounded up,
// which every store keeps exactly.
func (s *Service) retainUntil() time.Time {
	return s.realNow().UTC().Add(s.retention + time.Second - 1).Truncate(time.Second)
}

// putBody makes sure that the store holds the body, locked for long enough,
// and describes the object that it holds.
func (s *Service) putBody(ctx context.Context, head snapshotRow, body sealedBody, until time.Time) (Body, error) {
	d := body.describe(head.Integration)
	if d.Key == head.BodyKey {
		sealed, err := s.sealedManifest(ctx, head)
		if err == nil {
			return sealed.Body, s.extendBody(ctx, d.Key, head.bodyVersion, until)
		}
		// A damaged past is for VerifyChain to report; it must not end the future.
		var broken *BrokenError
		if !errors.As(err, &broken) {
			return d, err
		}
		s.log.Error("the snapshot chain is broken", "integration", head.Integration, "err", err)
	}
	_, err := s.store.Put(ctx, d.Key, body.stored, until.Add(bodyMargin))
	if err == nil {
		return d, nil
	}
	if !errors.Is(err, objectstore.ErrExists) {
		return d, fmt.Errorf("store the body: %w", err)
	}
	return s.reuseBody(ctx, d, until)
}

// reuseBody describes an object with this content that is there already: from
// an earlier snapshot of the same state, or from a writer that stopped. It may
// be compressed otherwise, by another version of this program.
func (s *Service) reuseBody(ctx context.Context, d Body, until time.Time) (Body, error) {
	receipt, err := s.store.Head(ctx, d.Key)
	if err != nil {
		return d, fmt.Errorf("look at the body: %w", err)
	}
	stored, err := s.store.Get(ctx, d.Key, receipt.VersionID)
	if err != nil {
		return d, fmt.Errorf("read the body: %w", err)
	}
	c := readContent(stored)
	if c.err != nil || c.contentHash != d.ContentHash {
		return d, fmt.Errorf("the store holds something else under %s", d.Key)
	}
	d.StoredHash, d.StoredSize = c.storedHash, c.storedSize
	return d, s.extendBody(ctx, d.Key, receipt.VersionID, until)
}

// extendBody lengthens a body's lock where it does not cover this snapshot.
func (s *Service) extendBody(ctx context.Context, key, version string, until time.Time) error {
	mode, have, err := s.store.Retention(ctx, key, version)
	if err != nil {
		return fmt.Errorf("read the lock of %s: %w", key, err)
	}
	if locked(mode, have, until) {
		return nil
	}
	if err := s.store.Extend(ctx, key, version, until.Add(bodyMargin)); err != nil {
		return fmt.Errorf("lengthen the lock of %s: %w", key, err)
	}
	return nil
}
