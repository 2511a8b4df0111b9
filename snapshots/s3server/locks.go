package s3server

import (
	"hash/maphash"
	"os"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend/meta"
)

// The gateway's names for its attributes of a file.
const (
	attrETag      = "etag"
	attrRetention = "object-retention"
	attrHold      = "object-legal-hold"
	attrVersion   = "version-id"
)

// keyLocks serialises what happens to one key. Keys share a fixed number of locks.
type keyLocks struct {
	seed    maphash.Seed
	stripes [1024]sync.Mutex
}

func newKeyLocks() *keyLocks { return &keyLocks{seed: maphash.MakeSeed()} }

func (l *keyLocks) lock(bucket, key string) (unlock func()) {
	m := &l.stripes[maphash.String(l.seed, bucket+"/"+key)%uint64(len(l.stripes))]
	m.Lock()
	return m.Unlock
}

// stampingMeta stores attributes as the gateway does, and adds the lock of an
// object that is being written to its file while that has no name yet: the
// gateway itself sets it after publication, when a crash can come between.
type stampingMeta struct {
	meta.XattrMeta
	pending sync.Map // "bucket/key" → stamp; the key's lock is held meanwhile
}

type stamp struct {
	retention []byte // the gateway's JSON; nil for none
	hold      bool
}

func (m *stampingMeta) StoreAttribute(f *os.File, bucket, object, attribute string, value []byte) error {
	if err := m.XattrMeta.StoreAttribute(f, bucket, object, attribute, value); err != nil {
		return err
	}
	if f == nil || attribute != attrETag {
		return nil
	}
	v, ok := m.pending.Load(bucket + "/" + object)
	if !ok {
		return nil
	}
	s := v.(stamp)
	if s.retention != nil {
		if err := m.XattrMeta.StoreAttribute(f, bucket, object, attrRetention, s.retention); err != nil {
			return err
		}
	}
	if s.hold {
		return m.XattrMeta.StoreAttribute(f, bucket, object, attrHold, []byte{1})
	}
	return nil
}

func holdRequested(status types.ObjectLockLegalHoldStatus) bool {
	return status == types.ObjectLockLegalHoldStatusOn
}
