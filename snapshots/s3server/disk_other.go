//go:build !linux

package s3server

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk is all file systems: only Linux can sync a single one.
type disk struct{}

func openDisk(...string) (*disk, error) { return &disk{}, nil }

func (*disk) sync() error {
	unix.Sync()
	return nil
}

// dieWithParent does nothing where the kernel knows no parent-death signal: the
// child sees its standard input end.
func dieWithParent(*syscall.SysProcAttr) {}

func executable() (string, error) { return os.Executable() }
