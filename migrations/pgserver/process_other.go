//go:build !linux

package pgserver

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing where the kernel knows no parent-death signal: the
// next Start on the same directory stops the orphan.
func dieWithParent(*syscall.SysProcAttr) {}

// inhabitants are the postmasters of the data directory, which stands in their
// command line. Their backends end with them and are not listed.
func inhabitants(data string) []int {
	out, err := exec.Command("ps", "-axo", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		pid, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(pid); err == nil && strings.Contains(command, "postgres -D "+data+" ") {
			pids = append(pids, n)
		}
	}
	return pids
}

// isPostmaster says whether the process lives and serves this data directory.
func isPostmaster(pid int, data string) bool {
	for _, p := range inhabitants(data) {
		if p == pid {
			return true
		}
	}
	return false
}
