//go:build testbed && recipes

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestJAXFindsItsWorld checks that JAX finds its world by Slurm's variables. Those of the step
// describe one daemon per node, so each rank must receive its own.
func TestJAXFindsItsWorld(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.wantSaid(t, installed(t, "JAX"), []string{"../../examples/jax_allreduce.py"}, sums)
}

// TestRapidsMPFFindsItsWorld checks the ranks of PyPI's rapidsmpf, which has no PMIx, on nodes that
// have their own addresses.
func TestRapidsMPFFindsItsWorld(t *testing.T) {
	bed := claim(t, fewNodes)
	var want []string
	for rank := range 4 {
		want = append(want, fmt.Sprintf("rank %d of 4: the value has 12 bytes and ends with 1", rank))
	}
	bed.wantSaid(t, installed(t, "RAPIDSMPF"), nil, want)
}

// TestTorchWhereTheOwnNameMisleads checks a world of Gloo on nodes whose own names lead to 127.0.1.1, as
// Debian's installer sets them up. Gloo listens at the address of the own name, unless a variable
// selects an interface.
func TestTorchWhereTheOwnNameMisleads(t *testing.T) {
	bed := claim(t, fewNodes)
	for node := range 2 {
		bed.onNode(t, node, "sh", "-c", `sed "s/^[0-9.]*\(.*$(hostname)\)/127.0.1.1\1/" /etc/hosts >/tmp/hosts && `+
			"mount --bind /tmp/hosts /etc/hosts")
		t.Cleanup(func() { bed.onNode(t, node, "umount", "/etc/hosts") })
	}
	bed.wantSaid(t, installed(t, "TORCH"), []string{"../../examples/torch_allreduce.py"}, sums)
}

// TestLightningFindsItsWorld checks Lightning, two of whose environments apply under Slurm. It
// prefers torchrun's, and Slurm's must agree with it for each rank.
func TestLightningFindsItsWorld(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.setenv("PYTHONPATH", installed(t, "LIGHTNING"))
	want := slices.Clone(sums)
	for _, kind := range []string{"TorchElastic", "SLURM"} {
		for rank := range 4 {
			want = append(want,
				fmt.Sprintf("%sEnvironment: rank %d of 4, %d on node %d, meets where it is "+
					"told: True", kind, rank, rank%2, rank/2))
		}
	}
	bed.wantSaid(t, installed(t, "TORCH"),
		[]string{"../local/testdata/lightning_finds.py", "../../examples/lightning_allreduce.py"},
		want)
}

// sums is the expected output of two nodes with two ranks each that add up their numbers.
var sums = []string{"rank 0 of 4: the sum of all is 6", "rank 1 of 4: the sum of all is 6",
	"rank 2 of 4: the sum of all is 6", "rank 3 of 4: the sum of all is 6"}

// wantSaid runs the first program with a Python, and the other programs as its arguments, on two
// nodes with two ranks each. It checks that the output contains these lines in any order.
func (bed *lane) wantSaid(t *testing.T, python string, programs, want []string) {
	t.Helper()
	dir := bed.place(t)
	bed.makeDir(t, dir)
	logs := filepath.Join(dir, "logs")
	bed.setenv("LOG_DIR", logs)
	bed.setenv("RANKS_PER_NODE", "2")
	bed.setenv("BRINGUPD_OVERSUBSCRIBE", "true") // the machine may have too few cores
	bed.prependPath(beds.bin())
	flags := []string{"--nodes=2", "--nodelist=n[0-1]",
		copyFile(t, "../../deploy/slurm/ranks.sbatch", dir), python}
	for _, program := range programs {
		flags = append(flags, copyFile(t, program, dir))
	}
	b := bed.submitFile(t, dir, flags...)
	result, out := saidBy(t, b, logs)
	// Ignore other output of the libraries.
	said := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return !strings.Contains(line, "rank ")
	})
	slices.Sort(said)
	want = slices.Sorted(slices.Values(want))
	if result.Code != 0 || !slices.Equal(said, want) {
		errors, _ := os.ReadFile(filepath.Join(dir, "err"))
		t.Errorf("the job ended with %d: %s; it said %q, want %q\n%s", result.Code, result.Reason,
			out, want, errors)
	}
}

// TestDaskFindsItsNodes checks a Dask cluster on nodes that have their own addresses: the gate
// opens, and the driver's functions run on each node.
func TestDaskFindsItsNodes(t *testing.T) {
	bed := claim(t, fewNodes)
	python := installed(t, "DASK")
	dir := bed.place(t)
	bed.makeDir(t, dir)
	logs := filepath.Join(dir, "logs")
	bed.setenv("LOG_DIR", logs)
	bed.prependPath(beds.bin(), filepath.Dir(python))
	driver := copyFile(t, "../../examples/dask_hosts.py", dir)
	b := bed.submitPrinted(t, dir, "dask", []string{"--nodes=2", "--nodelist=n[0-1]"}, []string{"python", driver})
	result, out := saidBy(t, b, logs)
	run := b.id + ".0"
	want := run + "-0 on n0\n" + run + "-1 on n1\nthe sum of the squares is 328350\n"
	if result.Code != 0 || out != want {
		errors, _ := os.ReadFile(filepath.Join(dir, "err"))
		t.Errorf("the job ended with %d: %s; it said %q, want %q\n%s", result.Code, result.Reason,
			out, want, errors)
	}
}

// saidBy waits for the end of a job, and returns its result and the output of its driver or ranks.
func saidBy(t *testing.T, b *batchJob, logs string) (record.Result, string) {
	t.Helper()
	within(t, worldEnd, func() string {
		return missing(filepath.Join(logs, b.id+".0", signal.NameResult))
	})
	result := resultOf(t, b, logs)
	b.bed.noneLeft(t) // the result may be there before srun has written all output
	out, err := os.ReadFile(b.out)
	must(t, err)
	return result, string(out)
}

// worldEnd limits the duration of a world of Python ranks on this machine's few cores.
const worldEnd = 4 * time.Minute

// TestComingFrom checks the commands that replace torchrun and mpirun in docs/from-torchrun.md and
// docs/from-mpirun.md, with 2 instead of 8 ranks on each node.
func TestComingFrom(t *testing.T) {
	ring := []string{"rank 0 of 4 on n0: the token came from rank 3, and the sum of all is 6",
		"rank 1 of 4 on n0: the token came from rank 0, and the sum of all is 6",
		"rank 2 of 4 on n1: the token came from rank 1, and the sum of all is 6",
		"rank 3 of 4 on n1: the token came from rank 2, and the sum of all is 6"}
	for _, tc := range []struct {
		page, command, program string
		want                   []string
	}{
		{"from-torchrun.md", "srun --kill-on-bad-exit=1 --wait=0 bringupd --ranks-per-node=8 " +
			"--bind=cpu,memory,network -- python train.py --epochs=3",
			"torch_allreduce.py", sums},
		{"from-mpirun.md", "srun --kill-on-bad-exit=1 --wait=0 bringupd --ranks-per-node=8 " +
			"--env=OMP_NUM_THREADS=1 -- ./app input.nml",
			"mpi_ring.py", ring},
		{"from-mpirun.md", "srun --kill-on-bad-exit=1 --wait=0 bringupd --slots-per-node=8 -- " +
			"mpirun -np 16 ./app input.nml",
			"mpi_ring.py", ring},
	} {
		t.Run(tc.program, func(t *testing.T) {
			bed := claim(t, fewNodes)
			for _, name := range []string{"BRINGUPD_OVERSUBSCRIBE", "OMPI_ALLOW_RUN_AS_ROOT",
				"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} {
				bed.setenv(name, "1")
			}
			bed.prependPath(beds.bin())
			program := installed(t, "TORCH") + " " + copyFile(t, "../../examples/"+tc.program, bed.Bin())
			command := strings.NewReplacer("=8 ", "=2 ", "-np 16", "-np 4", "python train.py",
				program, "./app", program).
				Replace(snippet(t, tc.page, tc.command))
			out := bed.batch(t, "#!/bin/bash\n"+command, "--nodes=2", "--nodelist=n[0-1]", "--ntasks-per-node=1")
			lines := out
			if strings.Contains(command, "mpirun ") { // which may mix the lines of its ranks
				lines = regexp.MustCompile(`rank \d+ of`).ReplaceAllString(out, "\n$0")
			}
			said := slices.DeleteFunc(strings.Split(lines, "\n"),
				func(line string) bool { return !strings.HasPrefix(line, "rank ") })
			if slices.Sort(said); !slices.Equal(said, tc.want) {
				t.Errorf("the job said %q, want %q", out, tc.want)
			}
		})
	}
}
