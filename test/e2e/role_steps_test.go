//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// submitSteps submits a job of so many nodes with a file of roles, whose further step is called
// judge. Each of its steps is started by its prefix and has the flags. The job prints the exit codes
// of both steps.
func (bed *lane) submitSteps(t *testing.T, roles string, nodes int, container []string,
	flags string) (b *batchJob, logs string) {
	t.Helper()
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte(roles), 0o644))
	logs = filepath.Join(dir, "logs")
	start, settings := "srun --overlap --wait=0 --kill-on-bad-exit=0 "+strings.Join(container,
		" ")+" "+program, " --config="+file+" --log-dir="+logs+" "+flags+"\n"
	b = bed.submit(t, "#!/bin/sh\n"+start+" --step=judge"+strings.TrimSuffix(settings,
		"\n")+" &\n"+start+settings+"echo main: $?\nwait %1\necho judge: $?\n",
		"-N", itoa(nodes), "-w", "n[0-"+itoa(nodes-1)+"]", "--ntasks-per-node=1")
	return b, logs
}

// TestRoleStepInAContainer runs servers in a step of their own, in another container than the world:
// their files and processes are invisible there, and the world reaches their planned ports. A server
// that ends is started again by the daemon of its step.
func TestRoleStepInAContainer(t *testing.T) {
	bed := claim(t, fewNodes)
	b, _ := bed.submitSteps(t, `roles:
- name: judge
  nodes: all
  step: judge
  restarts: {max: 1, backoff: 100ms..1s}
  ready: tcp:$BRINGUPD_PORT
  command: >-
    cd /tmp && echo $BRINGUPD_GENERATION >>mine &&
    exec timeout $((3 + 600 * BRINGUPD_GENERATION)) python3 -m http.server $BRINGUPD_PORT
- name: world
  nodes: all
  ranks-per-node: 1
  primary: true
  after: [judge]
  command: |
    ls /tmp/mine 2>&1 >/dev/null | wc -l
    python3 - <<'END'
    import http.client, os, time, urllib.request
    for address in os.environ["BRINGUPD_ROLE_JUDGE_ENDPOINTS"].split(","):
        text, until = "", time.time() + 60
        while text != "0 1" and time.time() < until:
            try:
                text = " ".join(urllib.request.urlopen(f"http://{address}/mine").read().decode().split())
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)
        print("generations", text)
    END
`, 2, bed.container("--proc", "/proc", "--unshare-pid"), "")
	out := b.wait("judge: 0\n")
	for _, line := range []string{"world.0.0: 1\n", "world.0.1: 1\n",
		"world.0.0: generations 0 1\n", "world.0.1: generations 0 1\n", "main: 0\njudge: 0\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("the output lacks %q: %s", line, out)
		}
	}
}

// TestRoleStepLosesADaemon kills the daemons of a further step, one after the other: the run goes on
// with one server of two, and ends without any, and the daemon of the run's own step on that node is
// not blamed.
func TestRoleStepLosesADaemon(t *testing.T) {
	bed := claim(t, fewNodes)
	b, logs := bed.submitSteps(t, `roles:
- {name: judge, nodes: all, step: judge, require: {start: all, run: 1}, restarts: 3, command: exec sleep 1009}
- {name: world, nodes: head, primary: true, after: [judge], command: exec sleep 1010}
`, 2, nil, "")
	bed.find(t, 0, "sleep", "1010")
	kill(t, bed.find(t, 0, program, "--step=judge"), syscall.SIGKILL)
	eventually(t, func() string { // its guard ends what it has started
		all, err := bed.AllProcesses()
		if err != nil {
			return err.Error()
		}
		for _, p := range all[0] {
			if slices.Equal(p.Args, []string{"sleep", "1009"}) {
				return bed.listed(all)
			}
		}
		return ""
	})
	bed.find(t, 0, "sleep", "1010")
	kill(t, bed.find(t, 1, program, "--step=judge"), syscall.SIGKILL)
	b.wait("main: 76\njudge: 137\n")
	var result record.Result
	runs, err := filepath.Glob(filepath.Join(logs, b.id+".*", signal.NameResult)) // either step may be the first
	must(t, err)
	for _, path := range runs {
		readJSON(t, path, &result)
	}
	if result.Cause == nil || result.Cause.Kind != health.DaemonDied ||
		!strings.Contains(result.Reason, "step judge of node 1 (n1)") {
		t.Errorf("the result is %+v", result)
	}
}

// TestRoleStepInARestart restarts a run whose world fails once: the daemons of the further step join
// the second attempt, too.
func TestRoleStepInARestart(t *testing.T) {
	bed := claim(t, fewNodes)
	b, _ := bed.submitSteps(t, `roles:
- {name: judge, nodes: all, step: judge, command: exec sleep 1013}
- {name: world, nodes: head, primary: true, after: [judge],
   command: "echo attempt $BRINGUPD_ATTEMPT; exit $((3 * (1 - BRINGUPD_ATTEMPT)))"}
`, 2, nil, "--restarts=1 --restart-on=any")
	if out := b.wait("judge: 0\n"); out != "attempt 0\nattempt 1\nmain: 0\njudge: 0\n" {
		t.Errorf("the job wrote %q", out)
	}
}

// TestRoleStepThatNeverStarts starts a run without its further step.
func TestRoleStepThatNeverStarts(t *testing.T) {
	bed := claim(t, fewNodes)
	dir := bed.place(t)
	bed.makeDir(t, dir)
	file := filepath.Join(dir, "job.yaml")
	must(t, os.WriteFile(file, []byte("roles:\n- {name: judge, nodes: all, step: judge, "+
		"command: exec sleep 1}\n"), 0o644))
	j := bed.run(t, launch{nodes: 2, flags: []string{"--config=" + file, "--join-timeout=3s"}})
	j.wantCode(124)
	if result := j.result(); result.Cause == nil ||
		!strings.HasPrefix(result.Reason, "the daemons of step judge on n[0-1] did not join within 3s: ") {
		t.Errorf("the result is %+v", result)
	}
}

// TestRoleStepExec runs a command on the nodes of a role: it runs in the container of the role's step.
func TestRoleStepExec(t *testing.T) {
	bed := claim(t, fewNodes)
	b, logs := bed.submitSteps(t, `roles:
- {name: judge, nodes: all, step: judge, ready: "file:/tmp/mine",
   command: "echo judge.$BRINGUPD_ROLE_INDEX >/tmp/mine; exec sleep 1011"}
- {name: world, nodes: head, primary: true, after: [judge], command: exec sleep 1012}
`, 2, bed.container("--proc", "/proc"), "")
	bed.find(t, 0, "sleep", "1012")
	out, err := bed.Command(t.Context(), program, "exec", "--role=judge", logs, "--", "cat",
		"/tmp/mine").CombinedOutput()
	if want := "n0: judge.0\nn1: judge.1\n"; err != nil ||
		strings.Join(slices.Sorted(strings.Lines(string(out))), "") != want {
		t.Errorf("got %v, %s", err, out)
	}
	if out, err := bed.Command(t.Context(), program, "stop", logs).CombinedOutput(); err != nil {
		t.Errorf("cannot stop: %v: %s", err, out)
	}
	b.wait("main: 143\njudge: 0\n")
}
