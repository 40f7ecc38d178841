//go:build testbed

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// traces lists what a job could leave on a node, one line each: mounts, files in the node's private
// folders, sockets.
type traces []string

// tracesScript lists the traces without those that are not a job's, and without a step's socket in
// slurmd's spool directory. For TCP it shows the listening sockets.
const tracesScript = `
cut -d' ' -f5,9- /proc/self/mountinfo | sed 's/^/mount /'
find /tmp /var/tmp /dev/shm -mindepth 1 | sed 's/^/file /'
cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" { print "listens " $2 }'
awk '$8 != "" && $8 !~ /^@|\/spool\// { print "socket " $8 }' /proc/net/unix
`

func (l *lane) traces(t *testing.T, node int) traces {
	t.Helper()
	list := l.bed.OnNode(t.Context(), l.first+node, "sh", "-c", tracesScript)
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("cannot look at what is on %s: %v: %s", l.bed.Node(l.first+node), err, out)
	}
	lines := traces(strings.Split(strings.TrimSpace(string(out)), "\n"))
	slices.Sort(lines)
	return slices.Compact(lines)
}

// left returns the traces on a node that did not exist before the job.
func (j *job) left(t *testing.T, node int, before traces) (left []string) {
	t.Helper()
	for _, line := range j.traces(t, node) {
		if _, was := slices.BinarySearch(before, line); !was {
			left = append(left, fmt.Sprintf("node %d: %s", node, line))
		}
	}
	for _, p := range lookAt(j.bed).nodes[j.first+node] {
		left = append(left, fmt.Sprintf("node %d: process %v", node, p))
	}
	return left
}
