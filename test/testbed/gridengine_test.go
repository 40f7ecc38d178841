//go:build testbed

package testbed

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGridEngine checks that a job script can start a task on each host of the job.
func TestGridEngine(t *testing.T) {
	b := start(t, Config{Nodes: 3, Share: Local, GridEngine: true})
	script := filepath.Join(b.Share(), "job.sh")
	must(t, os.WriteFile(script, []byte(`PATH=`+GridEnginePrograms+`:$PATH
while read -r host rest; do
	qrsh -inherit "$host" hostname </dev/null
done <"$PE_HOSTFILE"
qrsh -inherit n1 exit 7 </dev/null
`), 0o644))
	out := filepath.Join(b.Share(), "out")
	job := b.Command(t.Context(), GridEnginePrograms+"/qsub", "-sync", "y", "-cwd", "-j", "y", "-o",
		out, "-pe", ParallelEnvironment, "3", script)
	said, err := job.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("the job ended with %v, want the code 7: %s", err, said)
	}
	printed, err := os.ReadFile(out)
	must(t, err)
	hosts := strings.Fields(string(printed))
	slices.Sort(hosts)
	if want := []string{"n0", "n1", "n2"}; !slices.Equal(hosts, want) {
		t.Errorf("the job ran on %q, want %q", printed, want)
	}
}
