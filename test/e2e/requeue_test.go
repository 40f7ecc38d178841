//go:build testbed

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// requeued submits a batch job of three nodes that is requeued after a failure, and whose output
// ends with the exit code of its srun.
func (bed *lane) requeued(t *testing.T, logs, flags, driver string) *batchJob {
	t.Helper()
	script := "#!/bin/sh\n" +
		"srun --kill-on-bad-exit=0 --wait=0 " + program + " --log-dir=" + logs +
		" --on-failure=requeue " + flags + " -- sh -c '" + driver + "'\n" +
		"echo ended: $?\n"
	return bed.submit(t, script, "-N", "3", "--ntasks-per-node=1", "--requeue",
		"--open-mode=append", "--exclude=n7")
}

// resultOfRun waits for the result of one attempt of a batch job.
func resultOfRun(t *testing.T, logs, run string) (result record.Result) {
	t.Helper()
	path := filepath.Join(logs, run, signal.NameResult)
	eventually(t, func() string { return missing(path) })
	readJSON(t, path, &result)
	return result
}

// shown returns one field of scontrol's description of a job.
func (b *batchJob) shown(name string) string {
	b.t.Helper()
	out, err := b.bed.Command(context.Background(), "scontrol", "show", "job", "--oneliner",
		b.id).Output()
	if err != nil {
		b.t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if value, ok := strings.CutPrefix(field, name+"="); ok {
			return value
		}
	}
	return ""
}

// nodeOf returns the index of the testbed's node of that name.
func (bed *lane) nodeOf(t *testing.T, host string) int {
	t.Helper()
	for node := range bed.Nodes() {
		if bed.Node(node) == host {
			return node
		}
	}
	t.Fatalf("there is no node %s", host)
	return -1
}

// TestALostNodeHasTheJobStartedAnewElsewhere checks that a job whose node was lost is requeued
// without that node, and succeeds.
func TestALostNodeHasTheJobStartedAnewElsewhere(t *testing.T) {
	bed := claim(t, nodes)
	logs := bed.place(t)
	b := bed.requeued(t, logs, "--peer-timeout=3s", `[ -n "$SLURM_RESTART_COUNT" ] || sleep 1000`)
	first := filepath.Join(logs, b.id+".0")
	eventually(t, func() string {
		return missing(filepath.Join(first, signal.ControlDir, signal.NameGateOpen))
	})
	var joined record.Joined
	readJSON(t, filepath.Join(first, signal.NodesDir, signal.NodeName(2, 3, record.StateJoined)),
		&joined)
	kill(t, bed.daemonOf(t, bed.nodeOf(t, joined.Host)), syscall.SIGKILL)

	result := resultOfRun(t, logs, b.id+".0")
	if result.Code != 76 || result.Requeue == nil || !result.Requeue.Wanted ||
		!slices.Equal(result.BadNodes, []string{joined.Host}) {
		t.Errorf("the first attempt's result is %+v, with %+v", result, result.Requeue)
	}
	b.wait("ended: 0\n")
	again := resultOfRun(t, logs, b.id+".0-r1")
	if again.Code != 0 || slices.Contains(again.Hosts, joined.Host) {
		t.Errorf("the second attempt ended with %d on %v, and %s was lost", again.Code,
			again.Hosts, joined.Host)
	}
	if got, want := b.shown("ExcNodeList"),
		joined.Host+",n7"; got != want && got != "n["+joined.Host[1:]+",7]" && got != "n[6-7]" {
		t.Errorf("the job excludes %s, not %s", got, want)
	}
	bad, err := os.ReadFile(filepath.Join(logs, signal.BadNodesDir, b.id+".0"))
	if err != nil || string(bad) != joined.Host+"\n" {
		t.Errorf("the list of bad nodes has %q: %v", bad, err)
	}
}

// TestAJobGivesUp checks that a job which fails each time finally gives up, with its own exit code.
func TestAJobGivesUp(t *testing.T) {
	bed := claim(t, nodes)
	logs := bed.place(t)
	b := bed.requeued(t, logs, "--max-requeues=1 --peer-timeout=3s", "sleep 1000")
	for _, run := range []string{b.id + ".0", b.id + ".0-r1"} {
		dir := filepath.Join(logs, run)
		eventually(t, func() string {
			return missing(filepath.Join(dir, signal.ControlDir, signal.NameGateOpen))
		})
		var joined record.Joined
		readJSON(t, filepath.Join(dir, signal.NodesDir, signal.NodeName(2, 3, record.StateJoined)),
			&joined)
		kill(t, bed.daemonOf(t, bed.nodeOf(t, joined.Host)), syscall.SIGKILL)
	}
	b.wait("ended: 137\n") // srun's code is that of the killed daemon
	for run, code := range map[string]int{b.id + ".0": 76, b.id + ".0-r1": 69} {
		result := resultOfRun(t, logs, run)
		if result.Code != code || result.Cause == nil || result.Cause.Kind != "daemon-died" ||
			len(result.BadNodes) == 0 {
			t.Errorf("run %s ended with %d by %+v", run, result.Code, result.Cause)
		}
	}
	if got := b.shown("Restarts"); got != "1" {
		t.Errorf("Slurm has restarted it %s times", got)
	}
}

// TestABadTempDirIsNotStartedAnew checks that a missing directory for temporary files is an error
// of the launch: no node is bad, and the job is not requeued (N2, N3).
func TestABadTempDirIsNotStartedAnew(t *testing.T) {
	bed := claim(t, nodes)
	logs := bed.place(t)
	b := bed.requeued(t, logs, "--temp-dir=/nonexistent --worker-cmd=true", "true")
	b.wait("ended: 65\n")
	result := resultOfRun(t, logs, b.id+".0")
	if len(result.BadNodes) > 0 || result.Requeue == nil || result.Requeue.Wanted ||
		!strings.Contains(result.Reason, "--temp-dir=/nonexistent") {
		t.Errorf("the result blames %v, with %+v: %s", result.BadNodes, result.Requeue,
			result.Reason)
	}
}

// TestAServiceThatDiesIsNotStartedAnew checks that a job is not requeued after a failure that would
// only occur again.
func TestAServiceThatDiesIsNotStartedAnew(t *testing.T) {
	bed := claim(t, nodes)
	logs := bed.place(t)
	b := bed.requeued(t, logs, "--worker-cmd='exit 3'", "sleep 1000")
	b.wait("ended: 77\n")
	result := resultOfRun(t, logs, b.id+".0")
	if result.Requeue == nil || result.Requeue.Wanted {
		t.Errorf("the result says %+v", result.Requeue)
	}
	if got := b.shown("Restarts"); got != "0" {
		t.Errorf("Slurm has restarted it %s times", got)
	}
}

// TestAnAllocationIsNotStartedAnew checks an allocation without a batch script, which cannot be
// requeued: Slurm says so, and the job ends as it would without a requeue.
func TestAnAllocationIsNotStartedAnew(t *testing.T) {
	bed := claim(t, fewNodes)
	temp := "/tmp/" + filepath.Base(bed.place(t)) // each node has its own /tmp
	bed.onNode(t, 0, "mkdir", temp)
	t.Cleanup(func() { bed.onNode(t, 0, "rm", "-r", temp) })
	j := bed.run(t, launch{nodes: 2,
		flags:  []string{"--on-failure=requeue", "--temp-dir=" + temp, "--worker-cmd=true"},
		driver: []string{"true"}})
	j.wantCode(75)
	if got := j.stderr.String(); !strings.Contains(got, "Only batch jobs") {
		t.Errorf("nothing says why: %s", got)
	}
}
