//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestNodeDropped checks a job in which one node of four fails its check, and the driver needs
// three. Slurm would kill the step at the first task that exits with a nonzero code, and some
// seconds after the first task that exits at all, as at sites with a WaitTime. So the daemon of the
// dropped node must outlive a driver that takes longer.
func TestNodeDropped(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.run(t, launch{
		nodes: 4,
		srun:  []string{"--kill-on-bad-exit=1", "--wait=2"},
		flags: []string{"--nnodes=3", "--worker-cmd=exec sleep 1002",
			`--setup-cmd=[ "$BRINGUPD_LAUNCH_RANK" != 1 ] || { echo no disk; exit 3; }`},
		driver: []string{"/bin/sh", "-c",
			"sleep 5; echo $BRINGUPD_NODE_RANK of $BRINGUPD_NODE_COUNT: $BRINGUPD_HOSTS"},
	})
	j.wantCode(0)
	if got := j.stdout.String(); got != "0 of 3: n0,n2,n3\n" {
		t.Errorf("the driver says %q\n%s", got, &j.stderr)
	}
	result := j.result()
	if !slices.Equal(result.Team, []int{0, 2, 3}) || len(result.Dropped) != 1 ||
		result.Dropped[0].Host != "n1" ||
		!strings.Contains(result.Dropped[0].Reason, "the setup command of node 1 (n1) failed") {
		t.Errorf("the result is %+v", result)
	}
}

// TestDaemonKilledBeforeGate checks that a spare replaces a node whose daemon is killed while the
// services start. Slurm is configured not to react; nevertheless its code is that of the worst
// task, and the job's own code is in the result.
func TestDaemonKilledBeforeGate(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t) // use listings: a failed lookup stays cached for long
	j := bed.start(t, launch{
		nodes: 4,
		flags: []string{"--nnodes=3", "--peer-timeout=" + peerTimeout.String(),
			"--setup-cmd=mkdir -p " + dir + `; [ "$BRINGUPD_LAUNCH_RANK" != 3 ] || sleep 5`,
			"--worker-cmd=exec sleep 1002",
			"--worker-ready=exec:sh -c 'ls " + dir + " | grep -q started'"},
		driver: []string{"/bin/sh", "-c", "sleep 6; echo $BRINGUPD_HOSTS"},
	})
	bed.find(t, 1, "sleep", "1002")
	kill(t, bed.daemonOf(t, 1), syscall.SIGKILL)
	bed.find(t, 3, "sleep", "1002") // on the spare
	j.reached(filepath.Join(signal.ControlDir, signal.SeriesPlan.Name(1)))
	must(t, os.WriteFile(filepath.Join(dir, "started"), nil, 0o600))
	j.wantCode(137)
	if got := j.stdout.String(); got != "n0,n3,n2\n" {
		t.Errorf("the driver says %q\n%s", got, &j.stderr)
	}
	result := j.result()
	if result.Code != 0 || !slices.Equal(result.Team, []int{0, 3, 2}) || len(result.Dropped) != 1 ||
		result.Dropped[0].Host != "n1" {
		t.Errorf("the result is %+v", result)
	}
}
