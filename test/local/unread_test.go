package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/pipe"
)

// TestNobodyReads ends a job whose standard error is a full pipe without a reader, and checks that
// the driver first saves its work and that then all processes of the job end.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, to := pipe.Unread(t)
	job := exec.Command(jobtest.Bringupd, "local", "--nodes=2",
		"--log-dir="+filepath.Join(dir, "logs"), "--temp-dir="+dir, "--verbose", "--",
		"/bin/sh", "-c", "trap 'touch saved; exit 0' TERM; touch running; while :; do sleep 0.05; done")
	job.Dir, job.Stderr = dir, to
	job.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- job.Wait() }()
	t.Cleanup(func() { _ = job.Process.Kill() })
	untilFile(t, filepath.Join(dir, "running"))
	began := time.Now()
	if err := job.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	untilFile(t, filepath.Join(dir, "saved"))
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatalf("the job has not ended after %s", time.Since(began))
	}
	if code := job.ProcessState.ExitCode(); code != 143 {
		t.Errorf("it ended with %d", code)
	}
	if results, _ := filepath.Glob(filepath.Join(dir, "logs", "local-*", "result.json")); len(
		results) != 1 {
		t.Errorf("the results are %v", results)
	}
	// Both the daemon and bringupd local wait up to 10 s for the reader of the driver's output.
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("it took %s to end", took)
	}
}

func untilFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s", path)
		}
	}
}
