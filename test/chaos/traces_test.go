//go:build testbed

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// traces are what a job could leave on a node: mounts, files in the node's own
// folders, sockets. One line each.
type traces []string

// tracesScript leaves out what is not a job's, and Slurm's own: the socket of a
// step in slurmd's spool. Of TCP it shows the listening sockets.
const tracesScript = `
cut -d' ' -f5,9- /proc/self/mountinfo | sed 's/^/mount /'
find /tmp /var/tmp /dev/shm -mindepth 1 | sed 's/^/file /'
cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" { print "listens " $2 }'
awk '$8 != "" && $8 !~ /^@|\/spool\// { print "socket " $8 }' /proc/net/unix
`

func (l *lane) traces(t *testing.T, rank int) traces {
	t.Helper()
	list := l.bed.OnNode(t.Context(), l.first+rank, "sh", "-c", tracesScript)
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("cannot look at what is on %s: %v: %s", l.bed.Node(l.first+rank), err, out)
	}
	lines := traces(strings.Split(strings.TrimSpace(string(out)), "\n"))
	slices.Sort(lines)
	return slices.Compact(lines)
}

// left is what a job has left on a node, that was not there before.
func (j *job) left(t *testing.T, rank int, before traces) (left []string) {
	t.Helper()
	for _, line := range j.traces(t, rank) {
		if _, was := slices.BinarySearch(before, line); !was {
			left = append(left, fmt.Sprintf("rank %d: %s", rank, line))
		}
	}
	for _, p := range lookAt(j.bed).nodes[j.first+rank] {
		left = append(left, fmt.Sprintf("rank %d: process %v", rank, p))
	}
	return left
}
