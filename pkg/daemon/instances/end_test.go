package instances

import (
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/signal"
)

// TestEndAwaitsLongestGrace checks that a role is stopped after all that were started after it, whose
// grace periods differ.
func TestEndAwaitsLongestGrace(t *testing.T) {
	inBubble(t, 1, `
  - {name: store, nodes: head, command: serve}
  - {name: long, nodes: head, after: [store], command: serve, grace: 30s, env: {IGNORE_TERM: "1"}}
  - {name: short, nodes: head, after: [store], command: serve, grace: 2s}
`, func(r *run) {
		r.nodes[0].CancelRun(&lifecycle.Outcome{Orderly: true})
		r.nodes[0].Background(r.head.StopInOrder)
		r.sleep(20 * time.Second)
		r.want("early marks", r.names(signal.NodesDir, "stopped"), "0000.i0002.g0.stopped")
		r.want("early orders", r.names(signal.ControlDir, "end"), signal.EndName(1))
		r.sleep(20 * time.Second)
		r.want("marks", r.names(signal.NodesDir, "stopped"),
			"0000.i0000.g0.stopped", "0000.i0001.g0.stopped", "0000.i0002.g0.stopped")
		if code := r.head.StoppedCode(r.t.Context()); code != 0 {
			t.Errorf("the code without a primary role is %d", code)
		}
		r.statuses() // they are still accessible
	})
}
