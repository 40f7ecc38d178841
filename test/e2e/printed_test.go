//go:build testbed

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestPrintedScripts pipes the scripts that need no framework to sbatch, unchanged. Each succeeds, or
// says in one line what it lacks.
func TestPrintedScripts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, code string
		args       []string
		says       string // the line of the script on standard error
	}{
		{"torch", "64:0", nil, "cannot start ranks without a program"},
		{"mpi", "0:0", []string{"true"}, ""},
		{"generic", "0:0", []string{"true"}, ""},
		{"generic-sandbox", "1:0", nil, "SANDBOX_CMD: cannot start without the command of the sandbox"},
		{"ray-sandbox", "1:0", nil, "SANDBOX_CMD: cannot start without the command of the sandbox"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			bed.setenv("BRINGUPD_OVERSUBSCRIBE", "true") // the machine may have too few cores
			b, _ := bed.submitUnchanged(t, tc.name, tc.args...)
			bed.awaitCode(t, b, tc.code)
			text, err := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
			said := regexp.MustCompile(`(?m)^slurmstepd.*\n`).ReplaceAllString(string(text), "")
			if err != nil || !strings.Contains(said, tc.says) ||
				tc.says != "" && strings.Count(said, "\n") != 1 {
				t.Errorf("%v, it says %s", err, text)
			}
		})
	}
}

// submitUnchanged pipes a script that bringupd prints to sbatch, for its own number of nodes.
func (bed *lane) submitUnchanged(t *testing.T, name string, args ...string) (b *batchJob, logs string) {
	t.Helper()
	dir := bed.place(t)
	bed.makeDir(t, dir)
	logs = filepath.Join(dir, "logs")
	bed.setenv("LOG_DIR", logs)
	bed.prependPath(beds.bin())
	return bed.submitPrinted(t, dir, name, []string{"--nodelist=n[0-3]"}, args), logs
}

// awaitCode waits until a job has ended with an exit code and signal, as Slurm shows them.
func (bed *lane) awaitCode(t *testing.T, b *batchJob, code string) {
	t.Helper()
	eventually(t, func() string {
		out, err := bed.Command(t.Context(), "scontrol", "show", "job", b.id).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " ExitCode="+code) ||
			!strings.Contains(string(out), "JobState=COMPLETED") && !strings.Contains(string(out), "JobState=FAILED") {
			return "the job has not ended with " + code + ": " + string(out)
		}
		return ""
	})
}

// TestPrintedScriptWithoutADriver verifies that a script from a pipe without a driver stays up until
// bringupd stop.
func TestPrintedScriptWithoutADriver(t *testing.T) {
	bed := claim(t, fewNodes)
	b, logs := bed.submitUnchanged(t, "generic")
	eventually(t, func() string {
		return missing(filepath.Join(logs, b.id+".0", signal.ControlDir, signal.NameGateOpen))
	})
	if code, _, said, _ := bed.outside(t, "stop", filepath.Join(logs, b.id+".0")); code != 0 {
		t.Errorf("stop ends with %d: %s", code, said)
	}
	bed.awaitCode(t, b, "0:0")
}
