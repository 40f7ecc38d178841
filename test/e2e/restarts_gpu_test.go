//go:build testbed

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestRestartWithoutSickNode checks that the run is restarted without a node whose GPU has fallen
// off the bus, and that the GPUs of the other nodes are checked again.
func TestRestartWithoutSickNode(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "sh", "-c",
		`[ $BRINGUPD_ATTEMPT = 1 ] || exec sleep 1011; echo $BRINGUPD_HOSTS`)
	l.flags = append(l.flags, "--nnodes=3:4", "--restarts=1")
	j := bed.start(t, l)
	bed.find(t, 0, "sleep", "1011")
	must(t, fake.Add("n2", "event 3 xid 79"))
	j.wantCode(0)
	if got := j.stdout.String(); got != "n0,n1,n3\n" {
		t.Errorf("the driver saw the nodes %q\n%s", got, &j.stderr)
	}
}

// TestRanksOfASickGPU checks that a rank which fails with its GPU is not started again on the same
// node: the only restart is left for the attempt without it.
func TestRanksOfASickGPU(t *testing.T) {
	bed := claim(t, fewNodes)
	sick := bed.place(t)
	l, fake := bed.onGPUs(t, "sh", "-c", `[ $BRINGUPD_ATTEMPT = 0 ] || { echo $BRINGUPD_HOSTS; exit; }
		[ $RANK = 2 ] || exec sleep 1031; until [ -e `+sick+` ]; do sleep 0.1; done; exit 3`)
	l.flags = append(l.flags, "--nnodes=3:4", "--restarts=1", "--restart-on=rank", "--ranks-per-node=1")
	j := bed.start(t, l)
	bed.find(t, 0, "sleep", "1031") // the GPUs are watched
	must(t, fake.Add("n2", "event 3 xid 79"))
	time.Sleep(300 * time.Millisecond) // the driver of a GPU reports its fault before the program fails
	must(t, os.WriteFile(sick, nil, 0o644))
	j.wantCode(0)
	if got := j.stdout.String(); got != strings.Repeat("n0,n1,n3\n", 3) {
		t.Errorf("the ranks saw the nodes %q\n%s", got, &j.stderr)
	}
}
