//go:build testbed

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// longestKept is the length of the longest line, in bytes with its newline, that srun forwards in
// one piece: MAX_MSG_LEN in Slurm's src/common/io_hdr.h.
const longestKept = 1024

// TestLinesThroughSrunAreWhole checks that srun forwards complete lines if the ranks of all nodes
// write at the same time.
func TestLinesThroughSrunAreWhole(t *testing.T) {
	bed := claim(t, fewNodes)
	const lines, perNode, width = 500, 2, longestKept - len("[0 n0] \n")
	shout := fmt.Sprintf(
		`line=$(printf %%0%dd 0 | tr 0 $RANK); for i in $(seq %d); do echo $line; done`, width,
		lines)
	j := bed.run(t, launch{nodes: nodes / 2,
		flags:  []string{"--ranks-per-node=" + itoa(perNode), "--oversubscribe", "--tag"},
		driver: []string{"sh", "-c", shout}})
	j.wantCode(0)
	said := make(map[string]int)
	for line := range strings.Lines(j.stdout.String()) {
		rank := line[1:2]
		if len(line) != longestKept || strings.Count(line[7:], rank) != width {
			t.Fatalf("a line is mixed or cut: %q", line)
		}
		said[rank]++
	}
	for rank := range nodes / 2 * perNode {
		if got := said[itoa(rank)]; got != lines {
			t.Errorf("%d lines of rank %d, want %d", got, rank, lines)
		}
	}
}
