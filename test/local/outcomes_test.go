package local

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

var update = flag.Bool("update", false, "write testdata/outcomes.txt anew")

// outcomePrograms are shell scripts that the jobs of TestOutcomes run by their names. $D is the
// directory of the job, and its log directory is $D/logs.
var outcomePrograms = map[string]string{
	"await":  `until [ -e $D/$1 ]; do sleep 0.05; done`,
	"stay":   `: >$D/$1; exec sleep 300`,
	"on":     `[ $BRINGUPD_LAUNCH_RANK = $1 ] || exec sleep 300; eval "$2"`,
	"rank":   `[ $RANK = $1 ] || exec sleep 300; eval "$2"`,
	"signal": `kill -$1 $(cat $D/job); exec sleep 300`, // for the whole job
	"stop":   `"$BRINGUPD" stop; exec sleep 300`,
	// daemon prints the PID of the daemon of a worker.
	"daemon": `sed 's/.*"pid":\([0-9]*\).*/\1/' "$BRINGUPD_RUN_DIR/nodes/000$1.joined"`,
	// gone waits until the daemon of a process has seen its end. The process has written its PID.
	"gone": `until [ -s $D/$1 ]; do sleep 0.05; done
		while kill -0 $(cat $D/$1) 2>/dev/null; do sleep 0.05; done`,
}

// fourRanks are the flags of a world of four ranks on two nodes.
const fourRanks = "--nodes=2 --ranks-per-node=2 --oversubscribe "

// outcomeJobs are the jobs of TestOutcomes: the subcommand of bringupd and its arguments, in the
// words of a shell. Without a subcommand it is bringupd local.
var outcomeJobs = []struct{ name, line string }{
	// The driver ends.
	{"driver exits 0", `-- true`},
	{"driver exits 0, 4 nodes", `--nodes=4 -- true`},
	{"driver exits 3", `-- sh -c 'exit 3'`},
	{"driver exits 3, 4 nodes", `--nodes=4 -- sh -c 'exit 3'`},
	{"driver exits 76", `-- sh -c 'exit 76'`},
	{"driver gets TERM", `-- sh -c 'kill -TERM $$'`},
	{"driver gets KILL, 4 nodes", `--nodes=4 -- sh -c 'kill -KILL $$'`},
	{"driver gets SEGV", `-- sh -c 'kill -SEGV $$'`},
	{"driver is not found", `-- ./none`},
	{"driver is not found, 4 nodes", `--nodes=4 -- ./none`},
	{"driver is not executable", `--nodes=4 -- /etc/passwd`},
	{"driver exits 0, --on-end exits 9", `--on-end='exit 9' -- true`},
	{"driver exits 3, services stay, stop", `--nodes=2 --clean=none --worker-cmd='on 1 "` +
		`await logs/j/control/driver-ended; stop"' -- sh -c 'exit 3'`},

	{"a number of ranks beside services", `--nodes=2 --ranks=2 --head-cmd='exec sleep 300' ` +
		`--worker-cmd='exec sleep 300' --sandbox-cmd='exec sleep 300' -- true`},
	{"ranks and services, spare", `--nodes=3 --nnodes=2 --ranks-per-node=2 --oversubscribe ` +
		`--worker-cmd='exec sleep 300' -- true`},

	// The job is told to end.
	{"stop, no driver", `--nodes=2 --worker-cmd='on 1 "await logs/j/control/go; stop"'`},
	{"stop, no driver, before the gate", `--nodes=2 --setup-cmd='on 1 stop'`},
	{"stop", `--nodes=2 -- stop`},
	{"stop, driver exits 5", `--nodes=2 -- sh -c 'trap "exit 5" TERM; stop & wait'`},
	{"stop before the gate", `--nodes=2 --setup-cmd='on 1 stop' -- true`},
	{"TERM", `-- signal TERM`},
	{"TERM, 4 nodes", `--nodes=4 -- signal TERM`},
	{"TERM, driver exits 5", `-- sh -c 'trap "exit 5" TERM; signal TERM & wait'`},
	{"TERM before the gate", `--head-cmd='signal TERM' --head-ready=file:/none -- true`},
	{"TERM, no driver", `--nodes=2 --worker-cmd='on 1 "await logs/j/control/go; signal TERM"'`},
	{"TERM twice", `--driver-grace=1h -- sh -c 'trap "" TERM; while :; do kill -TERM ` +
		`$(cat $D/job); sleep 0.5; done'`},
	{"INT", `-- signal INT`},
	{"INT twice", `--driver-grace=1h -- sh -c 'trap "" TERM; while :; do kill -INT ` +
		`$(cat $D/job); sleep 0.5; done'`},
	{"HUP", `--nodes=2 -- signal HUP`},

	// A setup command or a check of a node fails. The daemon is the parent of both.
	{"setup exits 4 on node 1", `--nodes=3 --setup-cmd='[ $BRINGUPD_NODE_RANK != 1 ] || exit 4' ` +
		`-- true`},
	{"setup gets KILL on node 1", `--nodes=3 --setup-cmd='[ $BRINGUPD_NODE_RANK != 1 ] || ` +
		`kill -KILL $$' -- true`},
	{"setup does not end on node 1", `--nodes=3 --start-timeout=4s ` +
		`--setup-cmd='[ $BRINGUPD_NODE_RANK != 1 ] || sleep 300' -- true`},
	{"setup exits 4 on node 1, spare", `--nodes=3 --nnodes=2 --setup-cmd='` +
		`[ $BRINGUPD_LAUNCH_RANK != 1 ] || exit 4; await logs/j/nodes/0001.failed' -- true`},
	{"check exits 2", `--active-check='exit 2' -- true`},
	{"check exits 1", `--active-check='exit 1' -- true`},
	{"check exits 3", `--active-check='exit 3' -- true`},
	{"check does not end", `--start-timeout=1s --active-check='sleep 300' -- true`},
	{"check exits 2 on node 1", `--nodes=3 --setup-cmd='[ $BRINGUPD_NODE_RANK != 1 ] || ` +
		`: >$D/bad.$PPID' --active-check='await bad.*; [ ! -e $D/bad.$PPID ] || exit 2' -- true`},
	{"check exits 2 on node 1, spare", `--nodes=3 --nnodes=2 --setup-cmd='` +
		`[ $BRINGUPD_LAUNCH_RANK != 1 ] || : >$D/bad.$PPID' --active-check='await bad.*; ` +
		`[ ! -e $D/bad.$PPID ] || exit 2; await logs/j/nodes/0001.failed' -- true`},
	{"GPUs are missing", `--gpu-check=require --gpus-per-node=999 -- true`},

	// A sandbox fails.
	{"sandbox exits 3 early on node 1",
		`--nodes=3 --sandbox-cmd='on 1 "exit 3"' --sandbox-ready=file:/none -- true`},
	{"sandbox exits 0 early on node 1",
		`--nodes=3 --sandbox-cmd='on 1 "exit 0"' --sandbox-ready=file:/none -- true`},
	{"sandbox is not ready on node 1", `--nodes=3 --start-timeout=4s --sandbox-cmd='` +
		`[ $BRINGUPD_NODE_RANK = 1 ] || : >$D/good.$PPID; sleep 300' ` +
		`--sandbox-ready='exec:[ -e $D/good.$PPID ]' -- true`},
	{"sandbox exits 0 on node 2",
		`--nodes=3 --sandbox-cmd='on 2 "await up; exit 0"' -- stay up`},
	{"sandbox exits 5 on node 0",
		`--nodes=3 --sandbox-cmd='on 0 "await up; exit 5"' -- stay up`},
	{"sandbox gets KILL on node 2",
		`--nodes=3 --sandbox-cmd='exec on 2 "await up; kill -KILL \$\$"' -- stay up`},
	{"sandbox exits 3 on node 1, any is enough", `--nodes=3 --sandbox-require=any ` +
		`--sandbox-cmd='on 1 "exit 3"' -- await logs/j/nodes/0001.sandbox-failed`},
	{"sandbox exits 3 on node 1, 2 are enough", `--nodes=3 --sandbox-require=2 ` +
		`--sandbox-cmd='on 1 "exit 3"' -- await logs/j/nodes/0001.sandbox-failed`},
	{"sandbox exits 3 on node 1, 3 are required", `--nodes=3 --sandbox-require=3 ` +
		`--sandbox-cmd='on 1 "await up; exit 3"' -- stay up`},
	{"sandboxes exit 3 and then 4 on nodes 2 and 1, 2 are required", `--nodes=3 ` +
		`--sandbox-require=2 --sandbox-cmd='case $BRINGUPD_NODE_RANK in 2) await up; exit 3;; ` +
		`1) await logs/j/nodes/0002.sandbox-failed; exit 4; esac; sleep 300' -- stay up`},
	{"sandbox exits 3 on node 1, the head's is enough", `--nodes=3 --sandbox-require=head ` +
		`--sandbox-cmd='on 1 "exit 3"' -- await logs/j/nodes/0001.sandbox-failed`},
	{"sandbox exits 3 on node 0, the head's is required", `--nodes=3 --sandbox-require=head ` +
		`--sandbox-cmd='on 0 "await up; exit 3"' -- stay up`},

	// A service fails.
	{"head exits 5 early", `--nodes=3 --head-cmd='exit 5' --head-ready=file:/none -- true`},
	{"head is not ready",
		`--start-timeout=1s --head-cmd='sleep 300' --head-ready=file:/none -- true`},
	{"head exits 0", `--nodes=3 --head-cmd='await up' -- stay up`},
	{"head exits 5", `--nodes=3 --head-cmd='await up; exit 5' -- stay up`},
	{"head gets KILL", `--nodes=3 --head-cmd='await up; kill -KILL $$' -- stay up`},
	{"worker exits 5 early on node 2",
		`--nodes=3 --worker-cmd='on 2 "exit 5"' --worker-ready=file:/none -- true`},
	{"worker exits 5 early on node 1, spare", `--nodes=3 --nnodes=2 --setup-cmd='` +
		`[ $BRINGUPD_LAUNCH_RANK != 2 ] || await logs/j/control/plan.0000' --worker-cmd='` +
		`on 1 "exit 5"' --worker-ready='exec:[ -e $D/logs/j/nodes/0001.failed ]' -- true`},
	{"worker is not ready on node 1", `--nodes=3 --start-timeout=4s --worker-cmd='` +
		`[ $BRINGUPD_NODE_RANK = 1 ] || : >$D/good.$PPID; sleep 300' ` +
		`--worker-ready='exec:[ -e $D/good.$PPID ]' -- true`},
	{"worker exits 0 on node 2", `--nodes=3 --worker-cmd='on 2 "await up; exit 0"' -- stay up`},
	{"worker exits 5 on node 2", `--nodes=3 --worker-cmd='on 2 "await up; exit 5"' -- stay up`},
	{"worker exits 5 on node 0", `--nodes=3 --worker-cmd='on 0 "await up; exit 5"' -- stay up`},
	{"worker gets KILL on node 2",
		`--nodes=3 --worker-cmd='exec on 2 "await up; kill -KILL \$\$"' -- stay up`},
	{"worker exits 5 on node 1, no driver",
		`--nodes=2 --worker-cmd='on 1 "await logs/j/control/go; exit 5"'`},

	// Ranks end.
	{"ranks exit 0", fourRanks + `-- true`},
	{"rank 3 exits 7", fourRanks + `-- rank 3 'exit 7'`},
	{"rank 3 exits 7 after rank 0 has exited 0", fourRanks + `-- sh -c 'echo $$ >$D/$RANK; ` +
		`case $RANK in 0) exit 0;; 3) gone 0; exit 7; esac; sleep 300'`},
	{"rank 3 exits 7, and then rank 2 exits 8", fourRanks + `-- sh -c 'echo $$ >$D/$RANK; ` +
		`case $RANK in 3) exit 7;; 2) trap "" TERM; gone 3; exit 8; esac; sleep 300'`},
	{"rank 0 exits 1 because of a peer, and then rank 3 exits 7", fourRanks + `-- sh -c '` +
		`echo $$ >$D/$RANK; case $RANK in 0) echo Connection reset by peer; exit 1;; ` +
		`3) gone 0; exit 7; esac; sleep 300'`},
	{"rank 1 gets SEGV", fourRanks + `-- rank 1 'kill -SEGV $$'`},
	{"rank 3 gets KILL", fourRanks + `-- rank 3 'kill -KILL $$'`},
	{"rank 3 gets TERM", fourRanks + `-- rank 3 'kill -TERM $$'`},
	{"rank 2 aborts with 9", fourRanks + `-- rank 2 '"$BRINGUPD" kv abort 9; sleep 300'`},
	{"ranks 2 and 1 exit 5 and 4, the others go on", fourRanks + `--on-rank-failure=continue ` +
		`-- sh -c 'case $RANK in 1) exit 4;; 2) exit 5; esac'`},
	{"ranks are not found", fourRanks + `-- ./none`},
	{"ranks are not executable", fourRanks + `-- /etc/passwd`},
	{"one rank exits 3", `--nodes=2 --ranks=1 -- sh -c 'exit 3'`},
	{"one rank, HUP", `--nodes=2 --ranks=1 -- signal HUP`},
	{"ranks, TERM", fourRanks + `-- rank 3 'signal TERM'`},
	{"ranks, stop, rank 0 exits 5", fourRanks + `-- rank 0 'trap "exit 5" TERM; stop & wait'`},
	{"ranks, stop after rank 0 has exited 0", fourRanks + `-- sh -c 'echo $$ >$D/$RANK; ` +
		`[ $RANK != 0 ] || exit 0; [ $RANK != 3 ] || { gone 0; stop; }; sleep 300'`},

	// A daemon is lost. With --lifeline=on, all nodes have their peer links when the gate opens.
	{"daemon of node 1 gets KILL",
		`--nodes=3 --lifeline=on -- sh -c 'kill -KILL $(daemon 1); sleep 300'`},
	{"daemon of node 1 gets KILL, requeue", `--nodes=2 --lifeline=on --on-failure=requeue ` +
		`--max-requeues=0 -- sh -c 'kill -KILL $(daemon 1); sleep 300'`},
	{"daemon of node 1 gets KILL before the gate", `--nodes=2 --lifeline=on --worker-cmd='` +
		`case $BRINGUPD_NODE_RANK in 0) : >$D/good.$PPID;; 1) await logs/j/nodes/0000.up; ` +
		`kill -KILL $PPID; esac; sleep 300' --worker-ready='exec:[ -e $D/good.$PPID ]' -- true`},
	{"daemon of node 1 gets KILL before the gate, no link", `--nodes=2 --lifeline=off ` +
		`--peer-timeout=4s --setup-cmd='[ $BRINGUPD_NODE_RANK != 1 ] || kill -KILL $PPID; ` +
		`sleep 300' -- true`},
	{"daemon of node 1 gets KILL before the gate, spare", `--nodes=3 --nnodes=2 ` +
		`--lifeline=on --setup-cmd='[ $BRINGUPD_LAUNCH_RANK != 2 ] || ` +
		`await logs/j/control/plan.0000' --worker-cmd='on 1 "kill -KILL $PPID"' ` +
		`--worker-ready='exec:[ -e $D/logs/j/control/plan.0001 ]' -- true`},
	{"daemon of node 1 gets STOP", `--nodes=2 --lifeline=on --peer-timeout=4s ` +
		`--on-end='kill -KILL $(daemon 1)' -- sh -c 'kill -STOP $(daemon 1); sleep 300'`},
	{"daemon of the head gets KILL", `--nodes=2 --lifeline=on --worker-cmd='sleep 300' ` +
		`-- sh -c 'kill -KILL $PPID; sleep 300'`},
	{"daemon of the only node gets KILL", `-- sh -c 'kill -KILL $PPID; sleep 300'`},

	// The job is started again.
	{"restart, node 1 is lost", `--nodes=3 --nnodes=2:3 --lifeline=on --restarts=2 -- sh -c '` +
		`[ $BRINGUPD_ATTEMPT = 1 ] || { kill -KILL $(daemon 1); sleep 300; }'`},
	{"restart, nodes 1 and 2 are lost", `--nodes=4 --nnodes=2:4 --lifeline=on --restarts=1 ` +
		`-- sh -c 'kill -KILL $(daemon $((BRINGUPD_ATTEMPT + 1))); sleep 300'`},
	{"restart, node 1 is lost, no spare", `--nodes=2 --lifeline=on --restarts=2 ` +
		`-- sh -c 'kill -KILL $(daemon 1); sleep 300'`},
	{"restart, worker exits 5", `--nodes=2 --restarts=2 ` +
		`--worker-cmd='on 1 "await up; exit 5"' -- stay up`},
	{"restart on service, worker exits 5", `--nodes=2 --restarts=2 --restart-on=service ` +
		`--worker-cmd='on 1 "await up; [ $BRINGUPD_ATTEMPT = 1 ] || exit 5; sleep 300"' ` +
		`-- sh -c '[ $BRINGUPD_ATTEMPT = 1 ] || stay up'`},
	{"restart on rank, rank 1 exits 3", `--nodes=2 --ranks-per-node=1 --oversubscribe ` +
		`--restarts=1 --restart-on=rank -- rank 1 'exit 3'`},
	{"restart on rank, the ranks start again", `--nodes=2 --ranks-per-node=2 --oversubscribe ` +
		`--restarts=3 --restart-on=rank -- sh -c '[ $BRINGUPD_ATTEMPT = 2 ] || rank 3 "exit 3"'`},
	{"restart on rank, the others have ended", `--nodes=2 --ranks-per-node=1 --oversubscribe ` +
		`--restarts=1 --restart-on=rank -- sh -c '[ $BRINGUPD_ATTEMPT.$RANK != 0.1 ] || ` +
		`{ await logs/j/nodes/0000.i0000.g0.done; exit 3; }'`},
	{"restart on rank, one node", `--ranks-per-node=2 --oversubscribe ` +
		`--restarts=1 --restart-on=rank -- sh -c '[ $BRINGUPD_ATTEMPT = 1 ] || rank 1 "exit 3"'`},
	{"restart on rank, then node 2 is lost", `--nodes=3 --nnodes=2:3 --lifeline=on --ranks-per-node=1 ` +
		`--oversubscribe --restarts=2 --restart-on=rank -- sh -c 'case $BRINGUPD_ATTEMPT in ` +
		`0) rank 1 "exit 3";; 1) rank 0 "kill -KILL $(daemon 2); sleep 300";; esac'`},
	{"restart on rank, and every attempt fails", `--nodes=2 --ranks-per-node=1 --oversubscribe --nnodes=1:2 ` +
		`--lifeline=on --restarts=2 --restart-on=rank -- sh -c 'case $BRINGUPD_ATTEMPT in ` +
		`1) rank 0 "kill -KILL $(daemon 1); sleep 300";; *) rank 0 "exit 3";; esac'`},
	{"restart on any, driver exits 3", `--restarts=2 --restart-on=any ` +
		`-- sh -c '[ $BRINGUPD_ATTEMPT = 1 ] || exit 3'`},
	{"restart on any but 3, driver exits 3", `--restarts=2 --restart-on=any ` +
		`--no-restart-codes=3 -- sh -c 'exit 3'`},

	// A time is over.
	{"deadline", `--deadline=4s -- stay up`},
	{"deadline before the gate",
		`--deadline=4s --sandbox-cmd='sleep 300' --sandbox-ready=file:/none -- true`},
	{"ranks hang", fourRanks + `--hang-timeout=2s -- sleep 300`},
	{"node 1 does not join", `run --rank=0 --nnodes=2 --join-timeout=1s -- true`},
	{"head does not start", `run --rank=1 --nnodes=2 --join-timeout=1s -- true`},

	// The command line, the launch or the log directory is wrong.
	{"unknown flag", `--none -- true`},
	{"more sandboxes than nodes", `--sandbox-require=4 --sandbox-cmd='sleep 300' -- true`},
	{"ranks without a driver", `--ranks-per-node=2`},
	{"more nodes than daemons", `--nodes=2 --nnodes=3 -- true`},
	{"more ranks than cores", `--ranks-per-node=99999 -- true`},
	{"no launcher", `run -- true`},
	{"log directory is a file", `--log-dir=/etc/passwd -- true`},
	{"log directory cannot be made", `--log-dir=/proc/none -- true`},
}

// TestOutcomes compares the ends of outcomeJobs with testdata/outcomes.txt: the exit code of each
// job, and the fields of the results of its attempts. It does not compare sentences.
func TestOutcomes(t *testing.T) {
	const file = "testdata/outcomes.txt"
	outcomes := readOutcomes(t, file)
	if len(outcomes) != len(outcomeJobs) && !*update {
		t.Errorf("%s has %d jobs, not %d", file, len(outcomes), len(outcomeJobs))
	}
	bin := t.TempDir()
	for name, script := range outcomePrograms {
		err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700)
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := make([]string, len(outcomeJobs))
	for i, job := range outcomeJobs {
		want := outcomes[job.name]
		lines[i] = job.name + ": " + want + "\n" // if -run leaves it out
		t.Run(job.name, func(t *testing.T) {
			t.Parallel()
			j := startOutcomeJob(t, bin, job.line)
			got := outcomeOf(j)
			if lines[i] = job.name + ": " + got + "\n"; got != want && !*update {
				t.Errorf("%s\ngot  %s\nwant %s\n%s", job.line, got, want, &j.Said)
			}
		})
	}
	t.Cleanup(func() { // all jobs have ended
		if !*update {
			return
		}
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Error(err)
		}
	})
}

// readOutcomes returns the outcomes in a file of lines "name: outcome", by their names.
func readOutcomes(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, outcome, _ := strings.Cut(strings.TrimSpace(line), ": ")
		outcomes[name] = outcome
	}
	return outcomes
}

// startOutcomeJob starts a job of outcomeJobs. bin is the directory of outcomePrograms.
func startOutcomeJob(t *testing.T, bin, line string) *jobtest.Job {
	t.Helper()
	dir := t.TempDir()
	j := &jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"),
		Mark: jobtest.Mark("D=" + dir)}
	if !strings.HasPrefix(line, "run ") {
		line = "local " + line
	}
	j.Start([]string{"BRINGUPD=" + jobtest.Bringupd, "BRINGUPD_LOG_DIR=" + j.Logs,
		"BRINGUPD_JOB_ID=j", "PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")},
		"sh", "-c", `echo $$ >$D/job; exec "$BRINGUPD" `+line)
	return j
}

// outcomeOf waits for the end of a job. It returns its exit code, and the fields of its results.
func outcomeOf(j *jobtest.Job) string {
	j.T.Helper()
	outcome := strconv.Itoa(j.AwaitEnd(ceiling))
	results, _ := filepath.Glob(filepath.Join(j.Logs, "j*", signal.NameResult)) // sorted
	for _, path := range results {
		var result record.Result
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, &result)
		}
		if err != nil {
			j.T.Error(err)
		}
		outcome += " | " + resultFields(result)
	}
	return outcome
}

// resultFields returns the fields of a result that are the same whenever the job runs.
func resultFields(r record.Result) string {
	fields := []string{strconv.Itoa(r.Code), r.Outcome}
	add := func(isThere bool, name string, value any) {
		if isThere {
			fields = append(fields, fmt.Sprintf("%s=%v", name, value))
		}
	}
	if c := r.Cause; c != nil {
		// All daemons get such a signal, and any of them may be the first to report it.
		isShared := r.Size > 1 && (c.Kind == health.Terminated || c.Kind == health.Interrupted)
		add(true, "kind", c.Kind)
		add(!isShared, "phase", c.Phase)
		add(!isShared, "node", c.NodeIndex)
		add(c.Child != "", "child", strconv.Quote(c.Child))
		add(c.Code != 0, "code", c.Code)
		add(c.Signal != "", "signal", c.Signal)
		if c.WorldRank != nil {
			add(true, "rank", c.WorldRank.Number)
		}
		add(len(c.LostNodes) > 0, "lost", c.LostNodes)
	}
	var dropped []int
	for _, node := range r.Dropped {
		dropped = append(dropped, node.NodeIndex)
	}
	slices.Sort(dropped)
	add(len(dropped) > 0, "dropped", dropped)
	add(len(r.Team) > 0, "team", r.Team)
	add(len(r.BadNodes) > 0, "bad", len(r.BadNodes))
	add(r.NextAttempt > 0, "next", r.NextAttempt)
	return strings.Join(fields, " ")
}
