package process

import (
	"os"
	"slices"
	"testing"
)

func TestAncestors(t *testing.T) {
	var pids []int
	var argvs [][]string
	for pid, argv := range Ancestors(os.Getpid()) {
		pids, argvs = append(pids, pid), append(argvs, argv)
	}
	if len(pids) < 2 || pids[0] != os.Getpid() || pids[1] != os.Getppid() || !slices.Equal(argvs[0], os.Args) {
		t.Errorf("got %v, %q", pids, argvs)
	}
	for pid, argv := range Ancestors(1 << 30) {
		if pid != 1<<30 || argv != nil {
			t.Errorf("a process that is not there: %d, %q", pid, argv)
		}
	}
}
