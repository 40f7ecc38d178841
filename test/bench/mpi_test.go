//go:build testbed

package bench

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/bringupd/bringupd/test/testbed"
)

const mpiTurns = 7

// BenchmarkMPI starts ranks that call MPI_Init and MPI_Finalize, 2 × 1 and 8 × 4 (nodes × ranks of
// each), with Debian's Open MPI 4 and MPICH 4: by bringupd, by Slurm's own plugins and by mpirun in
// an allocation. It
// also starts 64 PMIx clients without MPI that put a value, fence and get one. It prints medians in
// milliseconds; "within the ranks" is the time from before MPI_Init until after MPI_Finalize in the
// slowest rank.
func BenchmarkMPI(b *testing.B) {
	bed, program := raise(b, testbed.StaleSSHFS)
	world := func(size, perNode int, argv ...string) []string {
		return slices.Concat([]string{
			"srun", "--mpi=none", "-N", strconv.Itoa(size), "--ntasks-per-node=1",
			"--kill-on-bad-exit=1", "--wait=0",
			program, "--log-dir=" + filepath.Join(bed.Share(), "logs"),
			"--ranks-per-node=" + strconv.Itoa(perNode), "--oversubscribe", "--",
		}, argv)
	}
	direct := func(size, perNode int, plugin string, argv ...string) []string {
		return slices.Concat([]string{"srun", "--mpi=" + plugin, "-N", strconv.Itoa(size), "-n",
			strconv.Itoa(size * perNode)}, argv)
	}
	for _, m := range []struct {
		name, compiler, plugin string
		launcher               []string
	}{
		{"Open MPI 4", "mpicc.openmpi", "pmix",
			[]string{"mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none"}},
		{"MPICH 4", "mpicc.mpich", "pmi2", []string{"mpirun.mpich"}},
	} {
		b.Run(m.name, func(b *testing.B) {
			init := compile(b, bed, m.compiler, "testdata/init.c")
			for _, shape := range [][2]int{{2, 1}, {nodes, 4}} {
				size, per := shape[0], shape[1]
				all := strconv.Itoa(size * per)
				b.Run(fmt.Sprintf("%dx%d", size, per), func(b *testing.B) {
					compare(b, bed, fmt.Sprintf("%s: %d × %d ranks, MPI_Init to MPI_Finalize",
						m.name, size, per), mpiTurns, []starter{
						{"srun --mpi=" + m.plugin, 0, direct(size, per, m.plugin, init)},
						{"bringupd --ranks-per-node=" + strconv.Itoa(per), 0, world(size, per, init)},
						{"salloc mpirun", 0,
							slices.Concat([]string{"salloc", "-Q", "-N", strconv.Itoa(size), "-n", all},
								m.launcher, []string{"-n", all, init})},
						{"srun -n" + all + " true", 0, direct(size, per, "none", "true")},
						{"bringupd -- true", 0, world(size, per, "true")},
					})
				})
			}
		})
	}
	b.Run("PMIx", func(b *testing.B) {
		client := compile(b, bed, "gcc", "../../pkg/ranks/pmi/pmix/testdata/client.c", "-ldl")
		const library = "libpmix.so.2" // the name that Debian's loader finds
		compare(b, bed, "64 clients of PMIx on 8 nodes", mpiTurns, []starter{
			{"srun --mpi=pmix", 0, direct(nodes, 8, "pmix", client, library, "exchange")},
			{"bringupd --ranks-per-node=8", 0, world(nodes, 8, client, library, "exchange")},
			{"srun -n64 true", 0, direct(nodes, 8, "none", "true")},
			{"bringupd -- true", 0, world(nodes, 8, "true")},
		})
	})
}

// compile compiles a program into a folder that all nodes see.
func compile(b *testing.B, bed *testbed.Bed, compiler, source string, flags ...string) string {
	b.Helper()
	program := filepath.Join(bed.Bin(), compiler+"-"+filepath.Base(source)+".bin")
	if out, err := exec.Command(compiler,
		slices.Concat([]string{"-O2", "-o", program, source},
			flags)...).CombinedOutput(); err != nil {
		b.Fatalf("cannot compile %s: %v: %s", source, err, out)
	}
	return program
}
