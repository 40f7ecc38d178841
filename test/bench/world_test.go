//go:build testbed

package bench

import (
	"context"
	"flag"
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

// starter is a method to start the ranks of a world.
type starter struct {
	name  string
	floor int      // index of the starter that it is compared with
	args  []string // arguments of the measured command
}

// BenchmarkWorld starts true in 2 × 1, 8 × 4 and 8 × 8 ranks (nodes × ranks of each), on the stale
// share, by srun, by bringupd, by bringupd rank and by Open MPI's mpirun in an allocation, in
// alternation. It also starts a single rank. It prints the median of each in milliseconds, and the
// median difference to srun with as many ranks.
func BenchmarkWorld(b *testing.B) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		b.Fatal("cannot run without a peer: Debian's openmpi-bin has mpirun")
	}
	bed, program := raise(b, testbed.StaleSSHFS)
	for _, shape := range [][2]int{{2, 1}, {nodes, 4}, {nodes, 8}} {
		size, ranks := shape[0], shape[1]
		b.Run(fmt.Sprintf("%dx%d", size, ranks), func(b *testing.B) {
			compare(b, bed, fmt.Sprintf("%d × %d ranks of true", size, ranks), *worldTurns,
				starters(program, filepath.Join(bed.Share(), "logs"), filepath.Join(bed.Bin(), "logs"), size, ranks))
		})
	}
}

var worldTurns = flag.Int("world-turns", pairs, "turns of BenchmarkWorld")

// compare runs the starters in alternation. It prints the median durations, the medians of what
// their ranks measured themselves, the medians of the differences to their floors, and the ratio of
// the first world of bringupd to each of the others.
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
	ours := max(0, slices.IndexFunc(starters, func(s starter) bool {
		return strings.Contains(s.name,
			"--ranks-per-node")
	}))
	fmt.Printf("| %s, by turns | ms | over the first of its kind | ratio | bringupd's ratio to "+
		"it | of that within the ranks |\n|---|---|---|---|---|---|\n", what)
	for i, s := range starters {
		over := make([]float64, len(took[i]))
		for turn := range over {
			over[turn] = took[i][turn] - took[s.floor][turn]
		}
		fmt.Printf("| %s | %.0f | %.0f | %.2f | %.2f | %.0f |\n", s.name, median(took[i]), median(over),
			median(took[i])/median(took[s.floor]), median(took[ours])/median(took[i]), median(within[i]))
	}
}

func starters(program, logs, local string, size, ranks int) []starter {
	n, all := strconv.Itoa(size), strconv.Itoa(size*ranks)
	tasks := []string{"srun", "-N", n, "-n", all}
	allocation := []string{"salloc", "-Q", "-N", n, "-n", all}
	world := func(logs string) []string {
		return []string{
			"srun", "-N", n, "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--wait=0",
			program, "--log-dir=" + logs, "--ranks-per-node=" + strconv.Itoa(ranks),
			"--oversubscribe", "--", "true",
		}
	}
	return []starter{
		{"srun -n" + all + " true", 0, slices.Concat(tasks, []string{"true"})},
		{"srun -n" + all + " bringupd rank -- true", 0,
			slices.Concat(tasks, []string{program, "rank", "--", "true"})},
		{"srun -N" + n + " bringupd --ranks-per-node=" + strconv.Itoa(ranks) + " -- true", 0, world(logs)},
		{"the same, in a directory that is no share", 0, world(local)},
		{"salloc -n" + all + " mpirun -n " + all + " true", 0, slices.Concat(allocation,
			[]string{"mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", all, "true"})},
		{"salloc -n" + all + " true: the allocation alone", 0, slices.Concat(allocation, []string{"true"})},
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
