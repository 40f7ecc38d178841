//go:build mpi

package worlds

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mpis returns the MPIs of the tested ranks, each with its compiler command.
func mpis(t *testing.T) map[string][]string {
	t.Helper()
	bin := func(variable string) string {
		python := os.Getenv(variable)
		if python == "" {
			t.Fatalf("cannot test MPI: %s must be the python of a virtual environment that has "+
				"one: . test/setup.sh", variable)
		}
		return filepath.Dir(python)
	}
	intel := filepath.Join(filepath.Dir(bin("BRINGUPD_TEST_INTEL")), "lib")
	return map[string][]string{
		"Open MPI 4": {"mpicc.openmpi"}, "MPICH 4": {"mpicc.mpich"},
		"Open MPI 5": {filepath.Join(bin("BRINGUPD_TEST_OPENMPI"), "mpicc")},
		"MPICH 5":    {filepath.Join(bin("BRINGUPD_TEST_MPICH"), "mpicc")},
		// It has the binary interface of MPICH, and its wheel contains no compiler.
		"Intel MPI": {"gcc", "-I/usr/include/x86_64-linux-gnu/mpich",
			filepath.Join(intel, "libmpi.so.12"), "-Wl,-rpath," + intel},
	}
}

// TestDrawnMPI injects faults into worlds whose ranks use a real MPI, each MPI in turn.
func TestDrawnMPI(t *testing.T) {
	programs := make(map[string]string)
	for name, compiler := range mpis(t) {
		programs[name] = filepath.Join(t.TempDir(), "ring")
		args := append([]string{"-O1", "-o", programs[name], "testdata/ring.c"}, compiler[1:]...)
		if said, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
			t.Fatalf("cannot compile for %s: %v\n%s", name, err, said)
		}
	}
	names := slices.Sorted(maps.Keys(programs))
	kinds := []kind{killRank, crashRank, exitRank, abortRank, killDaemon, killNode}
	first, runs := max(*seedFlag, 1), *runsFlag
	if *seedFlag > 0 && !given("runs") {
		runs = 1
	}
	times := make(map[kind][]time.Duration)
	for seed := first; seed < first+uint64(runs); seed++ {
		s := draw(seed, kinds)
		name := names[seed/uint64(len(kinds))%uint64(len(names))]
		s.mpi = name + ": "
		s.early = s.early && s.kind != abortRank // MPI_Abort is impossible before MPI_Init
		t.Run(strings.ReplaceAll(s.mpi+string(s.kind), " ", "-"), func(t *testing.T) {
			took := one(t, begin(t, nodes, perNode, programs[name]), s, "")
			times[s.kind] = append(times[s.kind], took)
		})
	}
	for _, k := range kinds {
		t.Log(spread(k, times[k]))
	}
}
