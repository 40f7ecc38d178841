//go:build mpi

package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The mpirun of a driver finds the nodes of a local run, which are all this machine, with the slots of all.
func TestOwnMPIRun(t *testing.T) {
	beside := func(name string) string {
		return filepath.Join(filepath.Dir(os.Getenv("BRINGUPD_TEST_"+name)), "mpirun")
	}
	for name, launcher := range map[string]string{"OPENMPI4": "mpirun.openmpi", "OPENMPI": beside("OPENMPI"), "MPICH": beside("MPICH")} {
		t.Run(name, func(t *testing.T) {
			python := os.Getenv("BRINGUPD_TEST_" + name)
			if python == "" {
				t.Fatalf("cannot run without %s: BRINGUPD_TEST_%s must name a Python that has it (make test installs it)", name, name)
			}
			job := exec.CommandContext(t.Context(), filepath.Join(bin, "bringupd"), "local", "--nodes=2", "--slots-per-node=2", "--log-dir="+t.TempDir(),
				"--", launcher, "-n", "2", python, "../e2e/testdata/mpirun_ring.py", "3")
			job.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			var said strings.Builder
			job.Stderr = &said
			out, err := job.Output()
			if code := job.ProcessState.ExitCode(); code != 3 || !strings.HasPrefix(string(out), "ring of 2 on ") {
				t.Errorf("it ended with %d (%v) and said %q\n%s", code, err, out, said.String())
			}
		})
	}
}
