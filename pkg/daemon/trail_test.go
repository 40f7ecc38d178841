package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// eventNames returns the events of a node, each as its name and its subject.
func eventNames(run *timeline.Run, nodeIndex int) []string {
	var all []string
	for _, e := range run.Events {
		if e.NodeIndex == nodeIndex {
			// For some records the suffix is the node index.
			name, _, _ := strings.Cut(e.Record+string(e.State)+string(e.EndedPhase)+e.Child, ".1")
			all = append(all, strings.TrimSpace(string(e.Name)+" "+name))
		}
	}
	return all
}

// TestEventsTellOfAJob verifies that the events show which node has published a record, which has
// seen it, and what has run.
func TestEventsTellOfAJob(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 3, "exit 3")
		j.start().expect(3, 0, 0)
		dir := filepath.Join(t.TempDir(), filepath.Base(j.run()))
		if err := j.share.Export(j.run(), dir); err != nil {
			t.Fatal(err)
		}
		run, err := timeline.Read(t.Context(), dir, timeline.DepthFull)
		if err != nil || len(run.Problems) > 0 {
			t.Fatalf("cannot read the run: %v, %q", err, run.Problems)
		}
		for nodeIndex, want := range [][]string{
			{"published job", "published 0000.joined", "reached joined", "leave join", "published go", "start driver", "exit driver", "leave driver", "published drain", "reached done", "end"},
			{"saw job", "published 0001.joined", "leave join", "saw drain", "enter", "end"},
			{"saw job", "published 0002.joined", "leave join", "saw drain", "enter", "end"},
		} {
			got := eventNames(run, nodeIndex)
			for _, event := range want {
				if !slices.Contains(got, event) {
					t.Errorf("node %d does not tell of %q: %q", nodeIndex, event, got)
				}
			}
		}
		for _, e := range run.Events {
			if e.Name == eventlog.DaemonEnded && *e.Code != []int{3, 0, 0}[e.NodeIndex] {
				t.Errorf("node %d says that it ends with %d", e.NodeIndex, e.Code)
			}
			if e.Name == eventlog.ChildExited && (e.NodeIndex != 0 || e.Exit != "exit code 3") {
				t.Errorf("node %d says that %s ended with %s", e.NodeIndex, e.Child, e.Exit)
			}
		}
		for nodeIndex, host := range j.configs[0].Identity.Hosts {
			raw, err := j.read(filepath.Join(j.run(), signal.EventsDir, signal.EventsName("daemon", nodeIndex, 3)))
			if end := fmt.Sprintf(`"event":"end","v":2,"node_index":%d,"host":%q`, nodeIndex, host); err != nil || !strings.Contains(string(raw), end) {
				t.Errorf("the events of node %d lack %s: %s, %v", nodeIndex, end, raw, err)
			}
		}
		for _, node := range run.Nodes[1:] {
			if !node.Clock.Known || node.Clock.Offset.Abs() > node.Clock.Residual {
				t.Errorf("the clock of node %d, which is the head's, is said to be %+v", node.NodeIndex, node.Clock)
			}
		}
		if run.Job.Hosts != "n[0-2]" {
			t.Errorf("the job's hosts are %q", run.Job.Hosts)
		}
	})
}
