package daemon

import (
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/eventlog"
)

// TestEventsTellOfAJob verifies that the events show which node has published a record, which has
// seen it, and what has run.
func TestEventsTellOfAJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 3, "exit 3")
		j.start().expect(3, 0, 0)
		for nodeIndex, want := range [][]string{
			{
				"published job", "published 0000.joined", "reached joined", "leave join", "published go",
				"start driver", "exit driver", "leave driver", "published drain", "reached done", "end",
			},
			{"saw job", "published 0001.joined", "leave join", "saw drain", "enter", "end"},
			{"saw job", "published 0002.joined", "leave join", "saw drain", "enter", "end"},
		} {
			var got []string
			for line := range strings.Lines(j.daemonEvents(nodeIndex)) {
				e, ok := eventlog.DecodeEvent([]byte(line))
				if !ok || e.NodeIndex != nil && *e.NodeIndex != nodeIndex {
					t.Errorf("node %d has the event %s", nodeIndex, line)
				}
				subject := e.Record + string(e.State) + string(e.EndedPhase) + e.Child
				got = append(got, strings.TrimSpace(string(e.Type)+" "+subject))
				if e.Type == eventlog.DaemonEnded && *e.Code != []int{3, 0, 0}[nodeIndex] {
					t.Errorf("node %d ends with %d", nodeIndex, *e.Code)
				}
				if e.Type == eventlog.ChildExited && (nodeIndex != 0 || e.Exit != "exit code 3") {
					t.Errorf("node %d: %s ended with %s", nodeIndex, e.Child, e.Exit)
				}
			}
			for _, event := range want {
				if !slices.Contains(got, event) {
					t.Errorf("node %d does not tell of %q: %q", nodeIndex, event, got)
				}
			}
		}
	})
}
