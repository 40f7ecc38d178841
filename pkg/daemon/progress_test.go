package daemon

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
)

// TestProgress verifies that the head reports which nodes are missing. No other daemon does so, and
// standard output stays free of it.
func TestProgress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		waits := make(chan struct{})
		j := newJob(t, 4, "echo driven").withChecks(func(nodeIndex int, l *fakeChecks) {
			if nodeIndex == 2 {
				l.waits = waits
			}
		})
		j.all(func(c *deps.Config) { c.Times.Join = ceiling })
		j.start(3)
		const want = "s now, for 2 of 4 nodes: not joined: node 3; checks not passed: node 2"
		j.until("the line of a long wait", func() bool { return strings.Contains(j.said(), want) })
		close(waits)
		j.start(0, 1, 2)
		j.expect(0, 0, 0, 0)
		if said := j.said(); strings.Count(said, "still waiting") > 3 {
			t.Errorf("it is told too often:\n%s", said)
		}
		if out := j.contents(j.out); out != "driven\n" {
			t.Errorf("standard output has %q", out)
		}
	})
}
