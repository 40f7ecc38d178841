//go:build mpi

package trial

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRealHydra tries the servers of PMI-1 of others: the mpiexecs of MPICH 4 and 5 and of Intel.
func TestRealHydra(t *testing.T) {
	program := filepath.Join(t.TempDir(), "bringupd")
	if said, err := exec.Command("go", "build", "-o", program, "github.com/bringupd/bringupd/cmd/bringupd").CombinedOutput(); err != nil {
		t.Fatalf("cannot build bringupd: %v\n%s", err, said)
	}
	beside := func(variable string) string {
		python := os.Getenv(variable)
		if python == "" {
			t.Fatalf("cannot try its mpiexec: %s must be the python of a virtual environment that has it", variable)
		}
		return filepath.Join(filepath.Dir(python), "mpiexec")
	}
	for name, mpiexec := range map[string]string{"MPICH 4": "mpiexec.hydra", "MPICH 5": beside("BRINGUPD_TEST_MPICH"), "Intel MPI": beside("BRINGUPD_TEST_INTEL")} {
		t.Run(name, func(t *testing.T) {
			try := func(flags ...string) (lines, code int) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				job := exec.CommandContext(ctx, mpiexec, append([]string{"-n", "3", program, "pmi", "test"}, flags...)...)
				job.Env = append(os.Environ(), "I_MPI_HYDRA_BOOTSTRAP=fork")
				out, err := job.Output()
				if exit, ended := errors.AsType[*exec.ExitError](err); ended {
					t.Logf("%s", exit.Stderr)
				} else if err != nil {
					t.Fatal(err)
				}
				return strings.Count(string(out), ": universe "), job.ProcessState.ExitCode()
			}
			if lines, code := try(); lines != 3 || code != 0 {
				t.Errorf("put and fence: %d ranks, code %d", lines, code)
			}
			if lines, code := try("--put", "--spawn"); lines != 4 || code != 0 {
				t.Errorf("spawn: %d ranks, code %d", lines, code)
			}
			if _, code := try("--fence", "--abort"); code != AbortCode {
				t.Errorf("abort: code %d", code)
			}
		})
	}
}
