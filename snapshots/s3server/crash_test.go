package s3server_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluis/snapshots/objectstore"
	"sluis/snapshots/s3server"
	"sluis/snapshots/s3server/s3test"
)

// TestKilledWhileWriting kills the server between any two steps of its writes.
// What it had acknowledged is there and locked afterwards, and what it had not
// is either absent or locked too: no object is ever seen without its lock.
func TestKilledWhileWriting(t *testing.T) {
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			dir := s3test.Dir(t)
			s := start(t, s3server.Options{Dir: dir})
			receipts := writeUntilKilled(t, s, 20+13*round)
			s = start(t, s3server.Options{Dir: dir})
			store := open(t, s.Config("kept"))
			for _, r := range receipts {
				checkLocked(t, store, r, r.Key)
			}
			seen := 0
			for o, err := range store.Versions(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				seen++
				if mode, until, err := store.Retention(t.Context(), o.Key, o.VersionID); err != nil || mode != "COMPLIANCE" {
					t.Errorf("%s: %q until %v, %v", o.Key, mode, until, err)
				}
			}
			if seen < len(receipts) {
				t.Errorf("%d versions, %d acknowledged", seen, len(receipts))
			}
		})
	}
}

// writeUntilKilled writes from several goroutines, kills the server after so many
// acknowledgements, and returns all receipts.
func writeUntilKilled(t *testing.T, s *s3server.Server, killAfter int) []objectstore.Receipt {
	t.Helper()
	store := open(t, s.Config("kept"))
	child, err := os.FindProcess(s.Pid())
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu       sync.Mutex
		receipts []objectstore.Receipt
		next     atomic.Int64
		writers  sync.WaitGroup
	)
	for range 6 {
		writers.Go(func() {
			for {
				key := fmt.Sprintf("k/%d", next.Add(1))
				r, err := store.Put(t.Context(), key, []byte(key), time.Now().Add(time.Hour))
				if err != nil {
					return
				}
				mu.Lock()
				receipts = append(receipts, r)
				if len(receipts) == killAfter {
					if err := child.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
						t.Error(err)
					}
				}
				mu.Unlock()
			}
		})
	}
	<-s.Done()
	writers.Wait()
	return receipts
}
