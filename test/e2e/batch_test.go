//go:build testbed

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// batchJob is a submitted batch script.
type batchJob struct {
	t   *testing.T
	bed *lane
	id  string
	out string // the file with its output
}

// submit submits a script with sbatch.
func (bed *lane) submit(t *testing.T, script string, flags ...string) *batchJob {
	t.Helper()
	dir := bed.place(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return bed.submitFile(t, dir, append(flags, path)...)
}

// submitFile calls sbatch with these flags, the script and its arguments.
func (bed *lane) submitFile(t *testing.T, dir string, flags ...string) *batchJob {
	t.Helper()
	return bed.submitBy(t, dir, []string{"sbatch"}, flags...)
}

// submitPrinted pipes a script that bringupd prints to sbatch, unchanged, with these flags and
// arguments.
func (bed *lane) submitPrinted(t *testing.T, dir, name string, flags, args []string) *batchJob {
	t.Helper()
	pipe := []string{"sh", "-c", `name=$1; shift; "$0" script "$name" | sbatch "$@"`, program, name}
	return bed.submitBy(t, dir, pipe, slices.Concat(flags, []string{"/dev/stdin"}, args)...)
}

// submitBy is submitFile with a command that passes its arguments to sbatch.
func (bed *lane) submitBy(t *testing.T, dir string, command []string, flags ...string) *batchJob {
	t.Helper()
	must(t, bed.Own(dir))
	out := filepath.Join(dir, "out")
	args := append([]string{"--parsable", "--output=" + out, "--error=" + filepath.Join(dir, "err"),
		"--chdir=" + dir}, flags...)
	cmd := bed.Command(t.Context(), command[0], slices.Concat(command[1:], args)...)
	answer, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot submit: %v: %s", err, answer)
	}
	id := strings.TrimSpace(string(answer))
	t.Cleanup(func() {
		if t.Failed() {
			state, _ := bed.Command(context.Background(), "scontrol", "show", "job", id).CombinedOutput()
			nodes, _ := bed.Command(context.Background(), "sinfo", "--Node", "--long").CombinedOutput()
			said, _ := os.ReadFile(filepath.Join(dir, "err"))
			t.Logf("the job printed on standard error:\n%s\n%s%s\n%s", said, state, nodes,
				bed.SlurmdLogs(20))
		}
		_ = bed.Command(context.Background(), "scancel", id).Run()
		bed.noneLeft(t)
	})
	return &batchJob{t: t, bed: bed, id: id, out: out}
}

func copyFile(t *testing.T, from, dir string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	to := filepath.Join(dir, filepath.Base(from))
	must(t, os.WriteFile(to, data, 0o755))
	return to
}

// wait waits until the output ends with the given words, and returns it.
func (b *batchJob) wait(last string) string {
	b.t.Helper()
	var seen string
	eventually(b.t, func() string {
		data, err := os.ReadFile(b.out)
		if err != nil {
			return err.Error()
		}
		seen = string(data)
		if strings.HasSuffix(seen, last) {
			return ""
		}
		errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		return "output: " + seen + "\nerrors: " + string(errors)
	})
	return seen
}

// batch submits a script and returns its output after it has ended.
func (bed *lane) batch(t *testing.T, script string, flags ...string) string {
	t.Helper()
	const end = "--end--\n"
	out := bed.submit(t, script+"echo --end--\n", flags...).wait(end)
	return strings.TrimSuffix(out, end)
}

// TestWaitAsksSlurm waits for a job that is held in the queue and then cancelled, and makes no run.
func TestWaitAsksSlurm(t *testing.T) {
	bed := claim(t, 1)
	job := bed.submit(t, "#!/bin/sh\nexit 0\n", "--hold", "--nodes=1")
	wait := bed.Command(t.Context(), program, "wait", job.id, "--log-dir="+filepath.Join(bed.place(t), "logs"))
	var printed buffer
	wait.Stderr = &printed
	must(t, wait.Start())
	eventually(t, func() string {
		if strings.Contains(printed.String(), "waiting for run "+job.id) {
			return ""
		}
		return "nothing is waited for: " + printed.String()
	})
	must(t, bed.Command(t.Context(), "scancel", job.id).Run())
	err := wait.Wait()
	const reason = "its job has ended (squeue: CANCELLED)"
	if wait.ProcessState.ExitCode() != 64 || !strings.Contains(printed.String(), reason) {
		t.Errorf("it ended with %v: %s", err, printed.String())
	}
}
