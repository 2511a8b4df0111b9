package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel end the child when we die, however we die: SIGQUIT
// is PostgreSQL's immediate shutdown, which takes its backends along.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// inhabitants are the postgres processes, postmaster and backends, whose working
// directory is data: PostgreSQL moves into its data directory.
func inhabitants(data string) []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, dir := range dirs {
		if cwd, err := os.Readlink(dir + "/cwd"); err != nil || cwd != data {
			continue
		}
		exe, err := os.Readlink(dir + "/exe")
		if err != nil || filepath.Base(strings.TrimSuffix(exe, " (deleted)")) != "postgres" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isPostmaster says whether the process lives and serves this data directory.
func isPostmaster(pid int, data string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && cwd == data
}
