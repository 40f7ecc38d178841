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
		{"a driver, by default", once, nil, 3, "0", "the driver has ended: exit code 3"},
		{"a driver", once, []string{"--restart-on=any"}, 0, "0 1", "driver (3): attempt 2 of at most 3 follows"},
		{"a driver that always fails", once + "; exit 4", []string{"--restart-on=any"}, 4, "0 1 2", "the driver has ended: exit code 4"},
		{"a driver, and its code", once, []string{"--restart-on=any", "--no-restart-codes=2-3"}, 3, "0", "exit code 3"},
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
