//go:build testbed && ray

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRolesWithRay runs a real Ray on two of four nodes, a service beside each of its nodes, a
// second Ray of one node with a command in it, and a driver that uses the first.
func TestRolesWithRay(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	ray := rayProgram(t)
	python := filepath.Join(filepath.Dir(ray), "python")
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(`ray: `+ray+`
ray-head-args: [--num-cpus=1, --object-store-memory=100000000]
ray-worker-args: [--num-cpus=1, --object-store-memory=100000000]
roles:
- {name: rl, nodes: 2, nodes-per-instance: all, framework: ray}
- {name: sandbox, with: rl, command: exec sleep 1009}
- name: judge
  nodes: 1
  framework: ray
  command: `+python+` -c 'import ray; ray.init(); print("judge has", len(ray.nodes()), flush=True); import time; time.sleep(600)'
- name: driver
  with: rl
  nodes: 1
  primary: true
  after: [rl, sandbox, judge]
  env: {RAY_ADDRESS: $BRINGUPD_ROLE_RL_ENDPOINTS}
  command: sleep 1; echo $RAY_ADDRESS
- name: user
  with: rl
  nodes: 1
  primary: true
  after: [rl, sandbox]
  command: `+python+` -c 'import ray; ray.init(); print("driver has", len([n for n in ray.nodes() if n["Alive"]]))'
`), 0o644))
	j := bed.start(t, launch{nodes: 4, flags: []string{"--config=" + file, "--service-timeout=3m"}})
	select {
	case <-j.ended:
	case <-time.After(rayEnd):
		t.Fatalf("the job has not ended after %s: %s", rayEnd, &j.stderr)
	}
	j.wantCode(0)
	if said := j.stdout.String(); !strings.Contains(said, "user.0: driver has 2\n") {
		t.Errorf("the output is %q", said)
	}
	log, _ := os.ReadFile(filepath.Join(j.runDir(), "logs", "judge-0.log"))
	if !strings.Contains(string(log), "judge has 1\n") {
		t.Errorf("the log of the judge is %s", log)
	}
}
