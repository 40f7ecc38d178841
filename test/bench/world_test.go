//go:build testbed

package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/testbed"
)

const ranksPerNode = 8

// starter is a method to start true in 64 ranks on eight nodes.
type starter struct {
	name  string
	floor int      // index of the starter that it is compared with
	args  []string // arguments of the measured command
}

// BenchmarkWorld starts true in 64 ranks on eight nodes, on the stale share, by srun, by bringupd,
// by bringupd rank and by Open MPI's mpirun in an allocation, in alternation. It also starts a
// single rank. It prints the median of each in milliseconds, and the median difference to srun with
// as many ranks.
func BenchmarkWorld(b *testing.B) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		b.Fatal("cannot run without a peer: Debian's openmpi-bin has mpirun")
	}
	bed, program := raise(b, testbed.StaleSSHFS)
	compare(b, bed, "64 ranks of true on 8 nodes", pairs,
		starters(program, filepath.Join(bed.Share(), "logs"), filepath.Join(bed.Bin(), "logs")))
}

// compare runs the starters in alternation. It prints the median durations, the medians of what
// their ranks measured themselves, and the medians of the differences to their floors.
func compare(b *testing.B, bed *testbed.Bed, what string, turns int, starters []starter) {
	b.Helper()
	took, within := make([][]float64, len(starters)), make([][]float64, len(starters))
	for _, s := range starters {
		s.timed(b, bed) // warm-up: the first run of each fills caches
	}
	for b.Loop() {
		for range turns {
			for i, s := range starters {
				whole, inner := s.timed(b, bed)
				took[i], within[i] = append(took[i], whole), append(within[i], inner)
			}
		}
	}
	fmt.Printf("| %s, by turns | ms | over the first of its kind | ratio | of that within the ranks |\n|---|---|---|---|---|\n", what)
	for i, s := range starters {
		over := make([]float64, len(took[i]))
		for turn := range over {
			over[turn] = took[i][turn] - took[s.floor][turn]
		}
		fmt.Printf("| %s | %.0f | %.0f | %.2f | %.0f |\n", s.name, median(took[i]), median(over),
			median(took[i])/median(took[s.floor]), median(within[i]))
	}
}

func starters(program, logs, local string) []starter {
	n, all := strconv.Itoa(nodes), strconv.Itoa(nodes*ranksPerNode)
	tasks := []string{"srun", "-N", n, "-n", all}
	allocation := []string{"salloc", "-Q", "-N", n, "-n", all}
	world := func(logs string) []string {
		return []string{
			"srun", "-N", n, "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--wait=0",
			program, "--log-dir=" + logs, "--ranks-per-node=" + strconv.Itoa(ranksPerNode),
			"--oversubscribe", "--", "true",
		}
	}
	return []starter{
		{"srun -n64 true", 0, slices.Concat(tasks, []string{"true"})},
		{"srun -n64 bringupd rank -- true", 0,
			slices.Concat(tasks, []string{program, "rank", "--", "true"})},
		{"srun -N8 bringupd --ranks-per-node=8 -- true", 0, world(logs)},
		{"the same, in a directory that is no share", 0, world(local)},
		{"salloc -n64 mpirun -n 64 true", 0, slices.Concat(allocation,
			[]string{"mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", all, "true"})},
		{"salloc -n64 true: the allocation alone", 0, slices.Concat(allocation, []string{"true"})},
		{"srun -n1 true", one, []string{"srun", "-n", "1", "true"}},
		{"srun -n1 bringupd rank -- true", one,
			[]string{"srun", "-n", "1", program, "rank", "--", "true"}},
	}
}

// one is the index of the starter of a single rank by srun.
const one = 6

// timed returns the duration of the command in milliseconds, and the largest value that its ranks
// printed, one per line. The latter is 0 if no rank printed one.
func (s starter) timed(b *testing.B, bed *testbed.Bed) (whole, within float64) {
	b.Helper()
	cmd := bed.Command(context.Background(), s.args[0], s.args[1:]...)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v: %s", strings.Join(s.args, " "), err, out)
	}
	whole = float64(time.Since(begin).Microseconds()) / 1000
	for word := range strings.FieldsSeq(string(out)) {
		if ms, is := strings.CutPrefix(word, "within="); is {
			inner, _ := strconv.ParseFloat(ms, 64)
			within = max(within, inner)
		}
	}
	return whole, within
}
