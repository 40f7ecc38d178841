//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestRolesOnSlurm runs a file of roles on four nodes of a real Slurm: a server per node on two of
// them, and a world on the others. A server that is killed is back on its port while the world runs,
// and another that has no restarts left ends the job.
func TestRolesOnSlurm(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(`roles:
- name: server
  nodes: 2
  restarts: {max: 1, backoff: 100ms..1s}
  command: echo serves on $BRINGUPD_PORT; exec sleep 1007
- name: world
  nodes: rest
  ranks-per-node: 1
  primary: true
  command: 'echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR, servers $BRINGUPD_ROLE_SERVER_HOSTS; exec sleep 1008'
`), 0o644))
	j := bed.start(t, launch{nodes: 4, flags: []string{"--config=" + file}})
	bed.find(t, 3, "sleep", "1008")
	kill(t, bed.find(t, 1, "sleep", "1007"), syscall.SIGKILL)
	j.reached(filepath.Join(signal.NodesDir, "0001.i0001.g1.ready"))
	kill(t, bed.find(t, 1, "sleep", "1007"), syscall.SIGKILL)
	j.wantCode(77)
	said := j.stdout.String()
	for _, line := range []string{"world.0.0: rank 0 of 2 at ", "world.0.1: rank 1 of 2 at ", ", servers n0,n1\n"} {
		if !strings.Contains(said, line) {
			t.Errorf("the output lacks %q: %s", line, said)
		}
	}
	if result := j.result(); result.Cause == nil || result.Cause.Child != "server.1" || !strings.Contains(result.Reason, "started again once") {
		t.Errorf("the result is %+v", result)
	}
}
