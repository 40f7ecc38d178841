//go:build testbed

package bench

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/bringupd/bringupd/test/testbed"
)

const (
	mpiRanksPerNode = 4
	mpiTurns        = 7
)

// BenchmarkMPI starts 32 ranks on eight nodes that call MPI_Init and MPI_Finalize, with Debian's
// Open MPI 4 and MPICH 4: by bringupd, by Slurm's own plugins and by mpirun in an allocation. It
// also starts 64 PMIx clients without MPI that put a value, fence and get one. It prints medians in
// milliseconds; "within the ranks" is the time from before MPI_Init until after MPI_Finalize in the
// slowest rank.
func BenchmarkMPI(b *testing.B) {
	bed, program := raise(b, testbed.StaleSSHFS)
	world := func(perNode int, argv ...string) []string {
		return slices.Concat([]string{
			"srun", "--mpi=none", "-N", strconv.Itoa(nodes), "--ntasks-per-node=1",
			"--kill-on-bad-exit=1", "--wait=0",
			program, "--log-dir=" + filepath.Join(bed.Share(), "logs"),
			"--ranks-per-node=" + strconv.Itoa(perNode), "--oversubscribe", "--",
		}, argv)
	}
	direct := func(perNode int, plugin string, argv ...string) []string {
		return slices.Concat([]string{"srun", "--mpi=" + plugin, "-N", strconv.Itoa(nodes), "-n",
			strconv.Itoa(nodes * perNode)}, argv)
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
			all := strconv.Itoa(nodes * mpiRanksPerNode)
			compare(b, bed, m.name+": 32 ranks on 8 nodes, MPI_Init to MPI_Finalize",
				mpiTurns, []starter{
					{"srun --mpi=" + m.plugin, 0, direct(mpiRanksPerNode, m.plugin, init)},
					{"bringupd --ranks-per-node=4", 0, world(mpiRanksPerNode, init)},
					{"salloc mpirun", 0,
						slices.Concat([]string{"salloc", "-Q", "-N", strconv.Itoa(nodes), "-n", all},
							m.launcher, []string{"-n", all, init})},
					{"srun -n32 true", 0, direct(mpiRanksPerNode, "none", "true")},
					{"bringupd -- true", 0, world(mpiRanksPerNode, "true")},
				})
		})
	}
	b.Run("PMIx", func(b *testing.B) {
		client := compile(b, bed, "gcc", "../../pkg/ranks/pmi/pmix/testdata/client.c", "-ldl")
		const library = "libpmix.so.2" // the name that Debian's loader finds
		compare(b, bed, "64 clients of PMIx on 8 nodes", mpiTurns, []starter{
			{"srun --mpi=pmix", 0, direct(ranksPerNode, "pmix", client, library, "exchange")},
			{"bringupd --ranks-per-node=8", 0, world(ranksPerNode, client, library, "exchange")},
			{"srun -n64 true", 0, direct(ranksPerNode, "none", "true")},
			{"bringupd -- true", 0, world(ranksPerNode, "true")},
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
