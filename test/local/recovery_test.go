package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// TestRecoveryInASecond kills a daemon of a run with a spare node, and measures the time until all
// ranks of the next attempt have started: on an idle machine it is less than half a second. Of
// several kills one must be quick, because other tests use the processors, too.
func TestRecoveryInASecond(t *testing.T) {
	const kills = 5
	var took []time.Duration
	for kill := range kills {
		took = append(took, recoveryTime(t, 1+kill%3))
	}
	t.Logf("from the kill to the start of all ranks: %v", took)
	if fastest := slices.Min(took); fastest > time.Second {
		t.Errorf("the fastest recovery took %s", fastest)
	}
}

// recoveryTime runs a job, kills the daemon of a node, and returns the time from there to the last
// start of a rank in the next attempt.
func recoveryTime(t *testing.T, victim int) time.Duration {
	t.Helper()
	j := startLocal(t, 4, []string{"--nnodes=3:4", "--restarts=1", "--ranks-per-node=1"},
		`: >$D/$BRINGUPD_ATTEMPT.$RANK; [ $BRINGUPD_ATTEMPT = 1 ] || exec sleep 300`)
	j.Need("the first attempt", func() bool { return hasStarted(j, 0, 4) })
	killed := time.Now()
	j.Signal(j.Daemon(victim), syscall.SIGKILL)
	j.Need("the second attempt", func() bool { return hasStarted(j, 1, 3) })
	took := time.Since(killed)
	code := j.AwaitEnd(ceiling)
	if said := j.Said.String(); code != 0 || !strings.Contains(said, "without node "+strconv.Itoa(victim)) {
		t.Errorf("the job has ended with %d:\n%s", code, said)
	}
	return took
}

// startLocal starts bringupd local on so many nodes with flags and a shell script, in which $D is the
// directory of the test.
func startLocal(t testing.TB, nodes int, flags []string, script string) *jobtest.Job {
	t.Helper()
	dir := t.TempDir()
	j := &jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"), Name: "j", Size: nodes,
		Mark: jobtest.Mark("D=" + dir)}
	words := append([]string{jobtest.Bringupd, "local", fmt.Sprint("--nodes=", nodes), "--job-id=j",
		"--log-dir=" + j.Logs}, flags...)
	if script != "" {
		words = append(words, "--", "bash", "-c", script)
	}
	j.Start([]string{"BRINGUPD=" + jobtest.Bringupd}, words...)
	return j
}

// hasStarted reports whether so many ranks of an attempt have made a file named ATTEMPT.RANK.
func hasStarted(j *jobtest.Job, attempt, ranks int) bool {
	marks, _ := filepath.Glob(filepath.Join(j.Dir, strconv.Itoa(attempt)+".*"))
	return len(marks) == ranks
}

// TestRestartOn checks which failures lead to a restart with each value of --restart-on: of the
// driver, of a rank, of a service.
func TestRestartOn(t *testing.T) {
	const once = `echo $BRINGUPD_ATTEMPT >>$D/starts; [ $BRINGUPD_ATTEMPT -ge 1 ] || exit 3`
	const ranks = "--ranks-per-node=1"
	for _, tc := range []struct {
		name, program string
		flags         []string
		code          int
		starts        string // the attempts in which the program was started
		says          string
	}{
		{"a driver, by default", once, nil, 3, "0",
			"bringupd starts no further attempt: driver (3) does not lead to a restart without --restart-on=any"},
		{"a driver", once, []string{"--restart-on=any"}, 0, "0 1", "driver (3): attempt 2 of at most 3 follows"},
		{"a driver that always fails", once + "; exit 4", []string{"--restart-on=any"}, 4, "0 1 2",
			"bringupd starts no further attempt: driver (4) again, in attempt 3 of at most 3"},
		{"a driver, and its code", once, []string{"--restart-on=any", "--no-restart-codes=2-3"}, 3,
			"0", "bringupd starts no further attempt: driver (3): there is no restart after this code"},
		{"a rank, by default", once, []string{ranks}, 3, "0 0",
			"rank (3) does not lead to a restart without --restart-on=rank"},
		{"a rank", once + "; [ $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS = 1/2 ]",
			[]string{ranks, "--restart-on=rank"}, 0, "0 0 1 1", "rank (3): attempt 2 of at most 3 follows"},
		{"a rank that is wrong", once + "; exit 65", []string{ranks, "--restart-on=rank"}, 65,
			"0 0 1 1", "rank (65): there is no restart after this code"},
		{"a service", once + ` || sleep 300`, []string{"--restart-on=service",
			`--worker-cmd=[ $BRINGUPD_ATTEMPT -ge 1 ] || { sleep 1; exit 5; }; sleep 300`}, 0,
			"0 1", "service (77): attempt 2 of at most 3 follows"},
		{"a service, by default", once + ` || sleep 300`, []string{`--worker-cmd=sleep 1; exit 5`},
			77, "0", "without --restart-on=service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			program := strings.Replace(tc.program, "exit 3 || sleep 300", "exec sleep 300", 1)
			j := startLocal(t, 2, append([]string{"--restarts=2"}, tc.flags...), program)
			code, said := j.AwaitEnd(ceiling), j.Said.String()
			data, _ := os.ReadFile(filepath.Join(j.Dir, "starts"))
			starts := strings.Fields(string(data))
			slices.Sort(starts)
			// Ranks may be ended before they have started the program.
			started := strings.Join(starts, " ") == tc.starts || slices.Contains(tc.flags, ranks) &&
				strings.Join(slices.Compact(starts),
					"") == strings.ReplaceAll(strings.ReplaceAll(tc.starts, "0 0", "0"), " 1 1", "1")
			if code != tc.code || !started || !strings.Contains(said, tc.says) {
				t.Errorf("it ended with %d, and started in the attempts %q:\n%s", code, starts, said)
			}
		})
	}
}

// TestProgress checks that steps are followed over a restart: the status, the result, metrics and
// the last words have them.
func TestProgress(t *testing.T) {
	t.Parallel()
	// It saves each tenth step, and reports steps by its output (rank 0) and by bringupd kv (rank 1).
	const program = `i=$(cat $D/saved.$RANK 2>/dev/null || echo 0)
while [ $i -lt 30 ]; do
	i=$((i+1))
	if [ $RANK = 0 ]; then echo "step $i"; else $BRINGUPD kv progress $i || exit 9; fi
	[ $((i%10)) != 0 ] || echo $i >$D/saved.$RANK
	sleep 0.02
	if [ $BRINGUPD_ATTEMPT.$i = 0.15 ]; then
		until [ -e $D/saved.0 ] && [ -e $D/saved.1 ]; do sleep 0.05; done
		exit 3
	fi
done
[ $BRINGUPD_ATTEMPT = 0 ] || until [ -e $D/seen ]; do sleep 0.05; done`
	metrics := t.TempDir()
	j := startLocal(t, 2, []string{"--restarts=2", "--restart-on=rank",
		"--ranks-per-node=1", `--progress=step (\d+)`, "--metrics-dir=" + metrics}, program)
	j.Need("the last step in the status", func() bool {
		status, _ := exec.Command(jobtest.Bringupd, "status", j.Logs).Output()
		return strings.Contains(string(status), "  progress: step 30, ") &&
			strings.Contains(string(status), "steps repeated after a restart")
	})
	j.Need("the last step in the metrics", func() bool {
		text, _ := os.ReadFile(filepath.Join(metrics, "bringupd-j-0.prom"))
		return strings.Contains(string(text), `bringupd_step{run="j",rank="0"} 30`) &&
			strings.Contains(string(text), "bringupd_goodput_ratio")
	})
	j.Write("seen", "")
	if code := j.AwaitEnd(ceiling); code != 0 {
		t.Fatalf("the job has ended with %d:\n%s", code, &j.Said)
	}
	left, _ := os.ReadFile(filepath.Join(metrics, fmt.Sprintf("bringupd_ended_%d.prom", os.Geteuid())))
	if count := fmt.Sprintf(`_total{uid="%d",outcome="driver",code="0"} 1`, os.Geteuid()); strings.Count(string(left),
		"_total{") != 1 || !strings.Contains(string(left), count+"\n") {
		t.Errorf("both attempts count as one launch that ended well, but not in:\n%s", left)
	}
	var result record.Result
	isThere := j.Read(&result, signal.NameResult)
	p := result.Progress
	if !isThere || p == nil || p.Step != 30 || p.MaxStep != 30 || !p.Gained || p.Goodput <= 0 ||
		p.Goodput >= 1 || len(p.Lost) != 1 {
		t.Fatalf("the progress is %+v", p)
	}
	// One of the ranks reached step 15, and both continue with 11.
	if lost := p.Lost[0]; !lost.InAttempt || lost.Reached < 14 || lost.Reached > 15 ||
		lost.Resumed != 11 || lost.Steps != lost.Reached-10 {
		t.Errorf("lost are %+v", lost)
	}
	if slow := p.Slowest; slow == nil || slow.Step != 30 || slow.Median != 30 || slow.Count != 2 {
		t.Errorf("the slowest is %+v", slow)
	}
	report, err := exec.Command(jobtest.Bringupd, "report", j.Path(), "--format=json").CombinedOutput()
	for _, want := range []string{`"name": "goodput"`, `"name": "lost"`, `"value": "rank 0`} {
		if err != nil || !strings.Contains(string(report), want) {
			t.Errorf("the report has no %q (%v):\n%s", want, err, report)
		}
	}
	if !strings.Contains(j.Said.String(), "  progress: step 30, ") {
		t.Errorf("it says:\n%s", &j.Said)
	}
}

// TestRestartWithoutProgress checks that a program which gains no step is not restarted again.
func TestRestartWithoutProgress(t *testing.T) {
	t.Parallel()
	j := startLocal(t, 1, []string{"--restarts=5", "--restart-on=any",
		`--progress=step (\d+)`}, `echo $BRINGUPD_ATTEMPT >>$D/starts
		echo step $((BRINGUPD_ATTEMPT < 2 ? BRINGUPD_ATTEMPT : 2)); exit 3`)
	code := j.AwaitEnd(ceiling)
	starts, _ := os.ReadFile(filepath.Join(j.Dir, "starts"))
	// Attempts 0 to 2 gain a step each, and attempt 3 none.
	if code != 3 || string(starts) != "0\n1\n2\n3\n" {
		t.Errorf("it ended with %d, and started in attempts %q:\n%s", code, starts, &j.Said)
	}
}

// TestTwoLossesOneAfterTheOther checks that an attempt does not wait for a node that an attempt
// before the last one has lost, and that the job ends at once if too few nodes are left.
func TestTwoLossesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	j := startLocal(t, 4, []string{"--nnodes=2:4", "--restarts=9", "--ranks-per-node=1"},
		`: >$D/$BRINGUPD_ATTEMPT.$RANK; exec sleep 300`)
	for attempt, name := range []string{"j", "j-a1", "j-a2"} {
		j.Need(fmt.Sprint("attempt ", attempt), func() bool { return hasStarted(j, attempt, 4-attempt) })
		j.Name = name
		j.Signal(j.Daemon(1+attempt), syscall.SIGKILL)
	}
	code := j.AwaitEnd(ceiling)
	if code != 76 || !strings.Contains(j.Said.String(), "1 of 4 nodes are left, and the driver needs 2") {
		t.Errorf("it ended with %d:\n%s", code, &j.Said)
	}
	// The time until the gate opened is in the result: no attempt has waited for a lost node.
	for _, j.Name = range []string{"j-a1", "j-a2"} {
		var result record.Result
		if !j.Read(&result, signal.NameResult) || result.TimeToGate > 10*time.Second {
			t.Errorf("the gate of %s opened after %s", j.Name, result.TimeToGate)
		}
	}
}
