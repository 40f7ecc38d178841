//go:build testbed && recipes

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// TestMPIFindsSlurmsPMIx checks that an Open MPI started by srun --mpi=pmix finds Slurm's PMIx
// through bringupd rank as it does without, and that both assign the same rank to each process.
func TestMPIFindsSlurmsPMIx(t *testing.T) {
	bed := claim(t, fewNodes)
	script := copyFile(t, "testdata/mpi_ranks.py", bed.Bin())
	for _, tc := range []struct {
		name    string
		through []string
		told    func(rank int) string
	}{
		{"alone", nil, func(int) string { return "None of None" }},
		{"through bringupd", []string{program, "rank", "--"}, func(rank int) string {
			return fmt.Sprintf("%d of 4", rank)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := slices.Concat([]string{"-N2", "-w", "n[0-1]", "--ntasks-per-node=2",
				"--mpi=pmix"}, tc.through, []string{"python3", script})
			var errors strings.Builder
			var out []byte
			var err error
			// Retry after a segmentation fault: Debian's Open MPI sometimes jumps to address 0 at start-up,
			// about once in 200 times, also without bringupd.
			for range 3 {
				srun := bed.Command(t.Context(), "srun", args...)
				srun.Stderr = &errors
				if out, err = srun.Output(); srun.ProcessState == nil ||
					srun.ProcessState.ExitCode() != 128+int(syscall.SIGSEGV) {
					break
				}
			}
			said := slices.Sorted(strings.Lines(string(out)))
			var want []string
			for rank := range 4 {
				want = append(want,
					fmt.Sprintf("rank %d of 4: the sum of all is 6; told %s\n", rank,
						tc.told(rank)))
			}
			if err != nil || !slices.Equal(said, want) {
				t.Errorf("%v: it said %q, not %q\n%s", err, said, want, errors.String())
			}
		})
	}
}

// TestMPIRunBinds checks that ranks of an mpirun that binds them keep its binding, and that
// otherwise they divide the CPUs of this machine among themselves.
func TestMPIRunBinds(t *testing.T) {
	for to, note := range map[string]string{
		"core": "CPUs are those that Open MPI's mpirun bound it to", "none": ""} {
		t.Run(to, func(t *testing.T) {
			mpirun := exec.CommandContext(t.Context(), "mpirun", "--allow-run-as-root", "--host",
				"localhost:2", "--bind-to", to, "-n", "2",
				program, "rank", "--bind=cpu", "--", "sh", "-c", `echo "$BRINGUPD_BINDING"`)
			out, err := mpirun.Output()
			var used []int
			for line := range strings.Lines(string(out)) {
				var place affinity.Affinity
				err := json.Unmarshal([]byte(line), &place)
				must(t, err)
				used = append(used, place.CPUs...)
				if len(place.CPUs) == 0 || place.Note != note {
					t.Errorf("a rank has %+v", place)
				}
			}
			slices.Sort(used)
			if err != nil || len(used) < 2 || len(slices.Compact(slices.Clone(used))) < len(used) {
				t.Errorf("%v: the ranks are on CPUs %v: %s", err, used, out)
			}
		})
	}
}
