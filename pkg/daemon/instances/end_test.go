package instances

import (
	"context"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
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
		r.nodes[0].Background(func(ctx context.Context) { r.head.StopInOrder(ctx, false) })
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

// TestNodesFollowOrderlyEnd checks that the nodes stop their instances level by level when they know
// the orderly end: those that were started after none of another node without an order, and the last
// ones of a node without a mark.
func TestNodesFollowOrderlyEnd(t *testing.T) {
	inBubble(t, 3, `
  - {name: store, nodes: head, command: serve}
  - {name: cache, nodes: all, after: [store], command: serve}
  - {name: server, nodes: all, after: [cache], command: serve, grace: 5s, env: {IGNORE_TERM: "1"}}
  - {name: main, nodes: head, primary: true, command: work}
`, func(r *run) {
		r.exit("main.0.0.g0", 0)
		r.later()
		for _, n := range r.nodes {
			n.CancelRun(&lifecycle.Outcome{Orderly: true})
			n.Background(func(ctx context.Context) {
				n.StopInOrder(ctx)
				<-n.ReportDone(&record.Done{})
			})
		}
		r.nodes[0].Background(func(ctx context.Context) { r.head.StopInOrder(ctx, true) })
		r.sleep(4 * time.Second)
		r.want("early marks", r.names(signal.NodesDir, "stopped"))
		r.sleep(10 * time.Second)
		// The cache waits for the servers of other nodes. The store waits for the head alone to order it.
		r.want("orders", r.names(signal.ControlDir, "end."), signal.EndName(3))
		r.want("marks", r.names(signal.NodesDir, "stopped"), "0000.i0001.g0.stopped",
			"0000.i0004.g0.stopped", "0001.i0005.g0.stopped", "0002.i0006.g0.stopped")
		r.want("done", r.names(signal.NodesDir, "done"), "0000.done", "0000.i0007.g0.done", "0001.done", "0002.done")
	})
}
