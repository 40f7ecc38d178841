//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// slowDriver prints the signals that it receives, and takes a while to end after TERM, like a
// driver that writes a checkpoint.
const slowDriver = `#!/bin/sh
trap 'echo got USR1' USR1
trap 'echo saving; sleep 2; echo saved; exit 5' TERM
echo started
while :; do sleep 0.1; done
`

func (bed *lane) writeDriver(t *testing.T, script string) string {
	t.Helper()
	path := bed.place(t) + ".sh"
	must(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

// TestTermLeavesTheDriverItsGrace checks scancel, which signals all processes of the step: the
// driver may save its state while its services run, and the job's code is 143, whatever the
// driver's code is.
func TestTermLeavesTheDriverItsGrace(t *testing.T) {
	bed := claim(t, fewNodes)
	driver, logs := bed.writeDriver(t, slowDriver), bed.place(t)
	script := "#!/bin/sh\nexec srun --wait=0 " + program + " --log-dir=" + logs +
		" -- " + driver + "\n"
	b := bed.submit(t, script, "-N", "4", "--ntasks-per-node=1")
	result := filepath.Join(logs, b.id+".0", "result.json")
	eventually(t, func() string { return lacks(b.out, "started") })
	asked := time.Now()
	if out, err := bed.Command(t.Context(), "scancel", b.id).CombinedOutput(); err != nil {
		t.Fatalf("cannot cancel: %v: %s", err, out)
	}
	eventually(t, func() string { return missing(result) })
	bed.noneLeft(t)
	if took := time.Since(asked); took > 20*time.Second {
		t.Errorf("it took %s to end", took)
	}
	if seen := lacks(b.out, "saved"); seen != "" {
		t.Errorf("the driver had no time to save: %s", seen)
	}
	var end struct {
		Code int
		Word string
	}
	readJSON(t, result, &end)
	if end.Code != 143 || end.Word != string(health.Terminated) {
		t.Errorf("the result is %+v, want 143", end)
	}
}

// saver is a driver that takes 12 s to save its state. That is longer than a driver has if Slurm
// kills soon and the services' grace period is 10 s.
const saver = `#!/bin/sh
trap 'trap "" TERM; echo saving; sleep 12; echo saved; exit 5' TERM
echo started
while :; do sleep 0.1; done
`

// submitGeneric submits the documented generic.sbatch, unchanged.
func (bed *lane) submitGeneric(t *testing.T, driver string) (b *batchJob, logs string) {
	t.Helper()
	return bed.submitCopied(t, "generic.sbatch", driver)
}

// submitCopied submits a documented script and waits for its driver, if any.
func (bed *lane) submitCopied(t *testing.T, name string, driver ...string) (b *batchJob,
	logs string) {
	t.Helper()
	dir := bed.place(t)
	bed.makeDir(t, dir)
	logs = filepath.Join(dir, "logs")
	script := copyFile(t, "../../deploy/slurm/"+name, dir)
	bed.setenv("LOG_DIR", logs)
	bed.setenv("WORKER_CMD", "exec sleep 1009")
	bed.setenv("SANDBOX_CMD", "exec sleep 1009")
	bed.prependPath(beds.bin())
	b = bed.submitFile(t, dir, append([]string{"--nodelist=n[0-3]", script}, driver...)...)
	if driver != nil {
		eventually(t, func() string { return lacks(b.out, "started") })
	}
	return b, logs
}

func (bed *lane) scancel(t *testing.T, args ...string) {
	t.Helper()
	if out, err := bed.Command(t.Context(), "scancel", args...).CombinedOutput(); err != nil {
		t.Fatalf("cannot cancel: %v: %s", err, out)
	}
}

// TestAScriptThatIsTold checks a signal to the batch script only, as with --signal=B:TERM@120: the
// driver has its own grace period, its services keep running, and its exit code is the job's.
func TestAScriptThatIsTold(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"generic.sbatch", "generic-sandbox.sbatch"} {
		t.Run(script, func(t *testing.T) {
			bed := claim(t, fewNodes)
			b, logs := bed.submitCopied(t, script, bed.writeDriver(t, saver))
			bed.scancel(t, "--signal=TERM", "--batch", b.id)
			eventually(t, func() string { return lacks(b.out, "saving") })
			for node := range 4 {
				bed.find(t, node, "sleep", "1009")
			}
			eventually(t, func() string { return lacks(b.out, "saved") })
			bed.awaitCode(t, b, "5:0")
			if end := resultOf(t, b, logs); end.Code != 5 || end.Outcome != "stopped" {
				t.Errorf("the result is %+v, want 5", end)
			}
		})
	}
}

// TestAScriptWithoutADriver checks that without a driver the services stay up until the script
// receives a signal.
func TestAScriptWithoutADriver(t *testing.T) {
	bed := claim(t, fewNodes)
	b, logs := bed.submitCopied(t, "generic.sbatch")
	eventually(t, func() string {
		return missing(filepath.Join(logs, b.id+".0", signal.ControlDir, signal.NameGateOpen))
	})
	for node := range 4 {
		bed.find(t, node, "sleep", "1009")
	}
	bed.scancel(t, "--signal=TERM", "--batch", b.id)
	if end := resultOf(t, b, logs); end.Code != 0 || end.Outcome != "stopped" {
		t.Errorf("the result is %+v, want 0", end)
	}
}

// resultOf waits for the result of a job, whichever of its steps wrote it.
func resultOf(t *testing.T, b *batchJob, logs string) record.Result {
	t.Helper()
	var results []string
	eventually(t, func() string {
		results, _ = filepath.Glob(filepath.Join(logs, b.id+".*", signal.NameResult))
		if len(results) != 1 {
			return "results: " + strings.Join(results, " ")
		}
		return ""
	})
	var result record.Result
	readJSON(t, results[0], &result)
	return result
}

// TestAStepThatIsTold checks a signal to all processes of the steps, as with --signal=TERM@120:
// services end because of it, which is not a failure, and no KILL follows.
func TestAStepThatIsTold(t *testing.T) {
	bed := claim(t, fewNodes)
	b, logs := bed.submitGeneric(t, bed.writeDriver(t, saver))
	bed.scancel(t, "--signal=TERM", b.id)
	eventually(t, func() string { return lacks(b.out, "saved") })
	if end := resultOf(t, b, logs); end.Code != 143 || end.Outcome != string(health.Terminated) {
		t.Errorf("the result is %+v, want 143", end)
	}
}

// TestAStepThatIsToldTwice checks that a second signal cuts the driver's grace period short.
func TestAStepThatIsToldTwice(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.setenv("DRIVER_GRACE", "1h")
	b, logs := bed.submitGeneric(t,
		bed.writeDriver(t, "#!/bin/sh\ntrap 'echo heard' TERM\necho started\nwhile :; do sleep 0.1; done\n"))
	bed.scancel(t, "--signal=TERM", b.id)
	eventually(t, func() string { return lacks(b.out, "heard") })
	time.Sleep(3 * time.Second) // an earlier signal would count as the same one
	bed.scancel(t, "--signal=TERM", b.id)
	if end := resultOf(t, b, logs); end.Code != 143 || end.Outcome != string(health.Terminated) {
		t.Errorf("the result is %+v, want 143", end)
	}
}

// TestScancelCutsALongGrace checks that a grace period of an hour is cut short if Slurm kills 30 s
// after TERM, so that bringupd ends the job itself and writes a result.
func TestScancelCutsALongGrace(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.setenv("DRIVER_GRACE", "1h")
	b, logs := bed.submitGeneric(t,
		bed.writeDriver(t, "#!/bin/sh\ntrap '' TERM\necho started\nwhile :; do sleep 0.1; done\n"))
	asked := time.Now()
	bed.scancel(t, b.id)
	end := resultOf(t, b, logs)
	eventually(t, func() string {
		return missing(filepath.Join(logs, b.id+".0", signal.ControlDir, signal.NameHeadFinished))
	})
	bed.noneLeft(t)
	t.Logf("it took %s", time.Since(asked))
	if end.Code != 143 || end.Outcome != string(health.Terminated) {
		t.Errorf("the result is %+v, want 143", end)
	}
}

func lacks(path, want string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(string(data), want) {
		return "no " + want + " in " + string(data)
	}
	return ""
}

// TestUserSignalsReachTheDriver checks that USR1 to the head's daemon reaches the driver.
func TestUserSignalsReachTheDriver(t *testing.T) {
	bed := claim(t, fewNodes)
	driver := bed.writeDriver(t, slowDriver)
	j := bed.start(t, launch{nodes: 2, driver: []string{driver}})
	eventually(t, func() string { return without(j, "started") })
	kill(t, bed.daemonOf(t, 0), syscall.SIGUSR1)
	eventually(t, func() string { return without(j, "got USR1") })
	// A signal to a single daemon also ends the job.
	kill(t, bed.daemonOf(t, 1), syscall.SIGTERM)
	j.wantCode(143)
	eventually(t, func() string { return without(j, "saved") })
}

// TestUserSignalsOfSlurmReachTheDriverOnce checks that the driver receives a signal only once if
// Slurm sends it to all processes of the step, as proctrack/linuxproc does (J12).
func TestUserSignalsOfSlurmReachTheDriverOnce(t *testing.T) {
	bed := claim(t, fewNodes)
	driver := bed.writeDriver(t,
		"#!/bin/sh\nfor s in USR1 USR2 HUP; do trap \"echo got $s\" $s; done\necho "+
			"started\nwhile :; do sleep 0.1; done\n")
	logs := bed.place(t)
	b := bed.submit(t, "#!/bin/sh\nexec srun "+program+" --log-dir="+logs+" -- "+driver+"\n", "-N",
		"2", "--ntasks-per-node=1")
	eventually(t, func() string { return lacks(b.out, "started") })
	names := []string{"USR1", "USR2", "HUP"}
	for _, name := range names {
		bed.scancel(t, "--signal="+name, b.id)
		eventually(t, func() string { return lacks(b.out, "got "+name) })
	}
	time.Sleep(3 * time.Second) // longer than a daemon waits before it forwards a signal
	data, err := os.ReadFile(b.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got := strings.Count(string(data), "got "+name+"\n"); got != 1 {
			t.Errorf("the driver got %s %d times", name, got)
		}
	}
	bed.scancel(t, b.id)
	resultOf(t, b, logs)
}

func without(j *job, want string) string {
	if out := j.stdout.String(); !strings.Contains(out, want) {
		return "standard output lacks " + want + ": " + out + "\n" + j.stderr.String()
	}
	return ""
}

// TestStopEndsAJobWithoutADriver checks that bringupd stop ends such a job with 0.
func TestStopEndsAJobWithoutADriver(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.start(t, launch{nodes: 3, flags: []string{"--worker-cmd=exec sleep 1000"}})
	j.reached("control/go")
	if out, err := bed.Command(t.Context(), program, "stop", j.logs).CombinedOutput(); err != nil {
		t.Fatalf("cannot stop: %v: %s", err, out)
	}
	j.wantCode(0)
}
