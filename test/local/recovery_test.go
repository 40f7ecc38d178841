package local

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
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
	dir := t.TempDir()
	var said bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "bringupd"), "local", "--nodes=4", "--nnodes=3:4", "--job-id=j",
		"--restarts=1", "--ranks-per-node=1", "--log-dir="+filepath.Join(dir, "logs"), "--", "sh", "-c",
		`: >$D/$BRINGUPD_ATTEMPT.$RANK; [ $BRINGUPD_ATTEMPT = 1 ] || exec sleep 300`)
	cmd.Env = append(os.Environ(), "D="+dir, "GORACE=exitcode=199 atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	started := func(attempt, ranks int) bool {
		marks, _ := filepath.Glob(filepath.Join(dir, strconv.Itoa(attempt)+".*"))
		return len(marks) == ranks
	}
	await := func(what string, is func() bool) {
		for deadline := time.Now().Add(ceiling); !is(); time.Sleep(step) {
			if time.Now().After(deadline) {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-ended
				t.Fatalf("%s has not come:\n%s", what, said.String())
			}
		}
	}
	// Kill the daemon of a node.
	await("the first attempt", func() bool { return started(0, 4) })
	data, err := os.ReadFile(filepath.Join(dir, "logs", "j", "nodes", "000"+strconv.Itoa(victim)+".joined"))
	var joined record.Joined
	if err == nil {
		err = json.Unmarshal(data, &joined)
	}
	if err != nil || joined.PID == 0 {
		t.Fatalf("cannot find the daemon of node %d: %v", victim, err)
	}
	killed := time.Now()
	if err := syscall.Kill(joined.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await("the second attempt", func() bool { return started(1, 3) })
	took := time.Since(killed)
	if err := <-ended; err != nil {
		t.Errorf("the job has ended with %v:\n%s", err, said.String())
	}
	for _, want := range []string{"without node " + strconv.Itoa(victim), "all 3 ranks have ended"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said.String())
		}
	}
	return took
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
		{"a driver, by default", once, nil, 3, "0", "there is no further attempt: driver (3) does not lead to a restart without --restart-on=any"},
		{"a driver", once, []string{"--restart-on=any"}, 0, "0 1", "driver (3): attempt 2 of at most 3 follows"},
		{"a driver that always fails", once + "; exit 4", []string{"--restart-on=any"}, 4, "0 1 2", "there is no further attempt: driver (4) again, in attempt 3 of at most 3"},
		{"a driver, and its code", once, []string{"--restart-on=any", "--no-restart-codes=2-3"}, 3, "0", "there is no further attempt: driver (3): there is no restart after this code"},
		{"a rank, by default", once, []string{ranks}, 3, "0 0", "rank (3) does not lead to a restart without --restart-on=rank"},
		{"a rank", once + "; [ $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS = 1/2 ]", []string{ranks, "--restart-on=rank"}, 0, "0 0 1 1", "rank (3): attempt 2 of at most 3 follows"},
		{"a rank that is wrong", once + "; exit 65", []string{ranks, "--restart-on=rank"}, 65, "0 0 1 1", "rank (65): there is no restart after this code"},
		{"a service", once + ` || sleep 300`, []string{"--restart-on=service", `--worker-cmd=[ $BRINGUPD_ATTEMPT -ge 1 ] || { sleep 1; exit 5; }; sleep 300`}, 0, "0 1", "service (77): attempt 2 of at most 3 follows"},
		{"a service, by default", once + ` || sleep 300`, []string{`--worker-cmd=sleep 1; exit 5`}, 77, "0", "without --restart-on=service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := strings.Replace(tc.program, "exit 3 || sleep 300", "exec sleep 300", 1)
			args := append([]string{"local", "--nodes=2", "--job-id=j", "--restarts=2", "--restart-backoff=10ms", "--log-dir=" + filepath.Join(dir, "logs")}, tc.flags...)
			cmd := exec.Command(filepath.Join(bin, "bringupd"), append(args, "--", "sh", "-c", program)...)
			cmd.Env = append(os.Environ(), "D="+dir, "GORACE=exitcode=199 atexit_sleep_ms=0")
			said, _ := cmd.CombinedOutput()
			data, _ := os.ReadFile(filepath.Join(dir, "starts"))
			starts := strings.Fields(string(data))
			slices.Sort(starts)
			// Ranks may be ended before they have started the program.
			started := strings.Join(starts, " ") == tc.starts || slices.Contains(tc.flags, ranks) && strings.Join(slices.Compact(starts), "") == strings.ReplaceAll(strings.ReplaceAll(tc.starts, "0 0", "0"), " 1 1", "1")
			if cmd.ProcessState.ExitCode() != tc.code || !started || !strings.Contains(string(said), tc.says) {
				t.Errorf("it ended with %d, and started in the attempts %q:\n%s", cmd.ProcessState.ExitCode(), starts, said)
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
	dir := t.TempDir()
	var said bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "bringupd"), "local", "--nodes=2", "--job-id=j", "--restarts=2", "--restart-on=rank", "--restart-backoff=10ms",
		"--ranks-per-node=1", `--progress=step (\d+)`, "--metrics-dir="+dir, "--log-dir="+filepath.Join(dir, "logs"), "--", "sh", "-c", program)
	cmd.Env = append(os.Environ(), "D="+dir, "BRINGUPD="+filepath.Join(bin, "bringupd"), "GORACE=exitcode=199 atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(ceiling); !is(); time.Sleep(step) {
			if time.Now().After(deadline) {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-ended
				t.Fatalf("%s has not come:\n%s", what, said.String())
			}
		}
	}
	await("the last step in the status", func() bool {
		status, _ := exec.Command(filepath.Join(bin, "bringupd"), "status", filepath.Join(dir, "logs")).Output()
		return strings.Contains(string(status), "j-a1") && strings.Contains(string(status), "  progress: step 30, ") && strings.Contains(string(status), "steps repeated after a restart")
	})
	await("the last step in the metrics", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "bringupd-j-a1-0.prom"))
		return strings.Contains(string(text), `bringupd_step{run="j-a1",rank="0"} 30`) && strings.Contains(string(text), "bringupd_goodput_ratio")
	})
	if err := os.WriteFile(filepath.Join(dir, "seen"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("the job has ended with %v:\n%s", err, said.String())
	}
	var result record.Result
	data, err := os.ReadFile(filepath.Join(dir, "logs", "j-a1", "result.json"))
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	p := result.Progress
	if err != nil || p == nil || p.Step != 30 || p.MaxStep != 30 || !p.Gained || p.Goodput <= 0 || p.Goodput >= 1 || len(p.Lost) != 1 {
		t.Fatalf("the progress is %+v (%v)", p, err)
	}
	// One of the ranks reached step 15, and both continue with 11.
	if lost := p.Lost[0]; lost.Attempt != 1 || lost.Reached < 14 || lost.Reached > 15 || lost.Resumed != 11 || lost.Steps != lost.Reached-10 {
		t.Errorf("lost are %+v", lost)
	}
	if slow := p.Slowest; slow == nil || slow.Step != 30 || slow.Median != 30 || slow.Count != 2 {
		t.Errorf("the slowest is %+v", slow)
	}
	report, err := exec.Command(filepath.Join(bin, "bringupd"), "report", filepath.Join(dir, "logs", "j-a1"), "--format=text").CombinedOutput()
	for _, want := range []string{"goodput: ", "lost before attempt 2: ", "slowest: rank 0"} {
		if err != nil || !strings.Contains(string(report), want) {
			t.Errorf("the report has no %q (%v):\n%s", want, err, report)
		}
	}
	if !strings.Contains(said.String(), "  progress: step 30, ") {
		t.Errorf("it says:\n%s", said.String())
	}
}

// TestRestartNeedsProgress checks that a program which gains no step is not restarted again.
func TestRestartNeedsProgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(bin, "bringupd"), "local", "--nodes=1", "--job-id=j", "--restarts=5", "--restart-on=any", "--restart-backoff=10ms", "--restart-needs-progress",
		`--progress=step (\d+)`, "--log-dir="+filepath.Join(dir, "logs"), "--", "sh", "-c", `echo $BRINGUPD_ATTEMPT >>$D/starts; echo step $((BRINGUPD_ATTEMPT < 2 ? BRINGUPD_ATTEMPT : 2)); exit 3`)
	cmd.Env = append(os.Environ(), "D="+dir, "GORACE=exitcode=199 atexit_sleep_ms=0")
	said, _ := cmd.CombinedOutput()
	starts, _ := os.ReadFile(filepath.Join(dir, "starts"))
	// Attempts 0 to 2 gain a step each, and attempt 3 none.
	if cmd.ProcessState.ExitCode() != 3 || string(starts) != "0\n1\n2\n3\n" {
		t.Errorf("it ended with %d, and started in attempts %q:\n%s", cmd.ProcessState.ExitCode(), starts, said)
	}
}

// TestTwoLossesOneAfterTheOther checks that an attempt does not wait for a node that an attempt
// before the last one has lost, and that the job ends at once if too few nodes are left.
func TestTwoLossesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var said bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "bringupd"), "local", "--nodes=4", "--nnodes=2:4", "--job-id=j", "--restarts=9", "--restart-backoff=10ms",
		"--ranks-per-node=1", "--log-dir="+filepath.Join(dir, "logs"), "--", "sh", "-c", `: >$D/$BRINGUPD_ATTEMPT.$RANK; exec sleep 300`)
	cmd.Env = append(os.Environ(), "D="+dir, "GORACE=exitcode=199 atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for attempt, run := range []string{"j", "j-a1", "j-a2"} {
		for deadline := time.Now().Add(ceiling); ; time.Sleep(step) {
			if marks, _ := filepath.Glob(filepath.Join(dir, strconv.Itoa(attempt)+".*")); len(marks) == 4-attempt {
				break
			}
			if time.Now().After(deadline) {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-ended
				t.Fatalf("attempt %d has not come:\n%s", attempt, said.String())
			}
		}
		var joined record.Joined
		data, err := os.ReadFile(filepath.Join(dir, "logs", run, "nodes", "000"+strconv.Itoa(1+attempt)+".joined"))
		if err == nil {
			err = json.Unmarshal(data, &joined)
		}
		if err != nil || joined.PID == 0 {
			t.Fatalf("cannot find a daemon: %v", err)
		}
		_ = syscall.Kill(joined.PID, syscall.SIGKILL)
	}
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != 76 || !strings.Contains(said.String(), "1 of 4 nodes are left, and the driver needs 2") {
		t.Errorf("it ended with %d:\n%s", code, said.String())
	}
	// The time until the gate opened is in the result: no attempt has waited for a lost node.
	for _, run := range []string{"j-a1", "j-a2"} {
		var result record.Result
		data, err := os.ReadFile(filepath.Join(dir, "logs", run, "result.json"))
		if err == nil {
			err = json.Unmarshal(data, &result)
		}
		if err != nil || result.TimeToGate > 10*time.Second {
			t.Errorf("the gate of %s opened after %s (%v)", run, result.TimeToGate, err)
		}
	}
}
