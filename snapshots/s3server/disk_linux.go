package s3server

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk is the file system of the store. The gateway never syncs, and its files
// are gone by the time that it answers, so the whole file system is synced.
type disk struct{ dirs []*os.File }

func openDisk(dirs ...string) (*disk, error) {
	d := &disk{}
	devices := map[uint64]bool{}
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
			return nil, fmt.Errorf("open store: %w", errors.Join(err, f.Close()))
		}
		if devices[uint64(st.Dev)] {
			_ = f.Close()
			continue
		}
		devices[uint64(st.Dev)] = true
		d.dirs = append(d.dirs, f)
	}
	return d, nil
}

func (d *disk) sync() error {
	for _, f := range d.dirs {
		if err := unix.Syncfs(int(f.Fd())); err != nil {
			return fmt.Errorf("sync store: %w", err)
		}
	}
	return nil
}

// dieWithParent has the kernel kill the child when we die, however we die.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// executable is this binary, also after it was replaced on the disk.
func executable() (string, error) { return "/proc/self/exe", nil }
