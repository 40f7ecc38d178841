//go:build testbed && ray

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestRolesWithRay runs a real Ray on two of four nodes, a service beside each of its nodes, a
// second Ray of one node with a command in it, and a driver that uses the first.
func TestRolesWithRay(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	bed.prependPath(filepath.Dir(rayProgram(t)))
	python := filepath.Join(filepath.Dir(rayProgram(t)), "python")
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(`ray-head-args: [--num-cpus=1, --object-store-memory=100000000]
ray-worker-args: [--num-cpus=1, --object-store-memory=100000000]
roles:
- {name: rl, nodes: 2, nodes-per-instance: all, framework: ray}
- {name: sandbox, with: rl, command: exec sleep 1009}
- name: judge
  nodes: 1
  framework: ray
  command: >-
    `+python+` -c 'import ray, time; ray.init(); print("judge has", len(ray.nodes()), flush=True);
    time.sleep(600)'
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
	j := bed.start(t, launch{nodes: 4, flags: []string{"--config=" + file, "--start-timeout=3m"}})
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

// useSmallRay makes each node of a Ray cluster start one worker process, because all nodes are on
// this machine.
func (bed *lane) useSmallRay() {
	for _, name := range []string{"BRINGUPD_RAY_HEAD_ARGS", "BRINGUPD_RAY_WORKER_ARGS"} {
		bed.setenv(name, "--num-cpus=1\n--object-store-memory=100000000")
	}
}

// TestRolesWithRayAndSandboxes runs the example with a Ray on two nodes and sandboxes on two others.
func TestRolesWithRayAndSandboxes(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.copyRoleExamples(t)
	logs := filepath.Join(dir, "logs")
	bed.prependPath(beds.bin(), filepath.Dir(rayProgram(t)))
	bed.useSmallRay()
	path := filepath.Join(dir, "job.sbatch")
	must(t, os.WriteFile(path, []byte(`#!/bin/bash
srun --kill-on-bad-exit=1 --wait=0 bringupd --log-dir=`+logs+` --config=examples/roles/ray_and_sandbox.yaml
`), 0o755))
	b := bed.submitFile(t, dir, "--nodes=4", "--ntasks-per-node=1", path)
	wantLines(t, b, endOf(t, b, logs), []string{
		"task 0 of 2: ['0', '0', '0', '0']\n", "task 1 of 2: ['1', '1', '1', '1']\n",
	})
}

// TestRolesWithRayAndJudges runs the example for NeMo RL: a Ray and sandboxes in the first component of
// a heterogeneous job, llama.cpp as the judges in the second one, and HAProxy in front of them. A
// judge is killed while the tasks of both nodes ask, and they get all answers.
func TestRolesWithRayAndJudges(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.copyRoleExamples(t)
	llama := installed(t, "LLAMA")
	bed.prependPath(beds.bin(), filepath.Dir(rayProgram(t)), installed(t, "ROUTERS"))
	bed.useSmallRay()
	bed.setenv("SERVE", llama+" examples/roles/llama_server.py")
	bed.setenv("JUDGE_MODEL", "tiny.gguf")
	bed.setenv("COMMAND", "exec python "+copyFile(t, "testdata/nemo_judges.py", dir))
	if out, err := exec.Command(llama, "../../examples/roles/tiny_model.py",
		filepath.Join(dir, "tiny.gguf")).CombinedOutput(); err != nil {
		t.Fatalf("cannot make a model: %v: %s", err, out)
	}
	b, logs := bed.submitComponents(t, dir, "nemo_rl.yaml", "--nodes=2,2")
	within(t, rayEnd, func() string {
		seen := missing(filepath.Join(dir, "asking.0")) + missing(filepath.Join(dir, "asking.1"))
		if seen != "" {
			errors, _ := os.ReadFile(filepath.Join(dir, "err"))
			seen += "\n" + string(errors)
		}
		return seen
	})
	// The instances of rl and sandbox have the numbers 0 to 2.
	kill(t, bed.find(t, bed.nodeOf(t, b.rolePlan(logs).Offers[3].Host), llama,
		"examples/roles/llama_server.py"), syscall.SIGKILL)
	within(t, rayEnd, func() string {
		return missing(filepath.Join(logs, b.id+".0", signal.NodesDir, "0003.i0004.g1.ready"))
	})
	must(t, os.WriteFile(filepath.Join(dir, "finish"), nil, 0o644))
	wantLines(t, b, endOf(t, b, logs), []string{
		"task 0: sandbox 40, all answered: True\n", "task 1: sandbox 41, all answered: True\n",
	})
}
