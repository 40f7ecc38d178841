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
	// The plan that was made with the run directory holds: its addresses are those of the nodes.
	j.reached(filepath.Join(signal.NodesDir, "0001.accepted"))
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
	if result := j.result(); result.Cause == nil || result.Cause.Child != "server.1" ||
		!strings.Contains(result.Reason, "started again once") {
		t.Errorf("the result is %+v", result)
	}
}

// TestALateSpareTakesAPlace prepares the third node so slowly that the roles are placed without it, and
// kills the daemon of the second one then: the third takes its place.
func TestALateSpareTakesAPlace(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file, gate := filepath.Join(dir, "job.yaml"), filepath.Join(dir, "open")
	must(t, os.WriteFile(file, []byte(`spares: 1
roles:
- name: setup
  nodes: all
  oneshot: node
  command: 'test $BRINGUPD_NODE_RANK != 2 || until test -e `+gate+`; do sleep 0.1; done'
- {name: store, nodes: 2, restarts: 3, require: {start: all, run: 1}, command: exec sleep 1016}
`), 0o644))
	j := bed.start(t, launch{nodes: 3, srun: []string{"--no-kill", "--kill-on-bad-exit=0"},
		flags: []string{"--config=" + file, "--join-timeout=16s"}})
	j.reached(filepath.Join(signal.ControlDir, signal.NameGateOpen))
	must(t, os.WriteFile(gate, nil, 0o644))
	j.reached(filepath.Join(signal.NodesDir, "0002.offer"))
	eventually(t, func() string {
		if said := j.stderr.String(); !strings.Contains(said, "spares now") {
			return said
		}
		return ""
	})
	kill(t, bed.find(t, 1, program, "--log-dir="+j.logs), syscall.SIGKILL)
	bed.find(t, 2, "sleep", "1016")
	if out, err := bed.Command(t.Context(), program, "stop", j.logs).CombinedOutput(); err != nil {
		t.Fatalf("cannot stop: %v: %s", err, out)
	}
	j.reached(signal.NameResult)
}

// TestRanksOfRolesOnSlurm runs a world whose total leaves a node with fewer ranks, and in which the
// others go on when one has failed.
func TestRanksOfRolesOnSlurm(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(`roles:
- name: world
  nodes: all
  ranks-per-node: 2
  ranks: 3
  primary: true
  on-rank-failure: continue
  command: 'test $RANK != 1 || exit 3; sleep 1; echo rank $RANK of $WORLD_SIZE on $(hostname)'
`), 0o644))
	j := bed.run(t, launch{nodes: 2, flags: []string{"--config=" + file}})
	j.wantCode(3)
	lines := strings.Split(strings.TrimSpace(j.stdout.String()), "\n")
	slices.Sort(lines)
	if want := []string{"world.0.0: rank 0 of 3 on n0", "world.0.2: rank 2 of 3 on n1"}; !slices.Equal(lines, want) {
		t.Errorf("the output is %q, want %q", lines, want)
	}
}

// TestRoleHangsOnSlurm runs a world of two nodes of which one rank stops and the other waits. It is
// ended and started again, and then ends with 0.
func TestRoleHangsOnSlurm(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(`roles:
- name: world
  nodes: all
  ranks-per-node: 1
  primary: true
  hang-timeout: 3s
  restarts: {max: 1, backoff: 100ms..1s}
  command: |
    if test $BRINGUPD_GENERATION = 0; then
      test $RANK = 1 && kill -STOP $$
      exec sleep 1014
    fi
    echo rank $RANK of generation $BRINGUPD_GENERATION
`), 0o644))
	j := bed.run(t, launch{nodes: 2, flags: []string{"--config=" + file}})
	j.wantCode(0)
	for _, line := range []string{"world.0.0: rank 0 of generation 1\n", "world.0.1: rank 1 of generation 1\n"} {
		if !strings.Contains(j.stdout.String(), line) {
			t.Errorf("the output lacks %q: %s", line, &j.stdout)
		}
	}
	text, err := os.ReadFile(filepath.Join(j.runDir(), signal.LogsDir, "daemon-0000.log"))
	must(t, err)
	if log := string(text); !strings.Contains(log, "rank 1 of world.0 on n1: stopped by a signal") {
		t.Errorf("the head's log does not have what the ranks were doing: %s", log)
	}
}
