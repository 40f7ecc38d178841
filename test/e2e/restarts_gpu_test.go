//go:build testbed

package e2e

import "testing"

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
