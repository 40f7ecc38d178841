package instances

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// replaceNode publishes a plan in which a node that is in none has the place of the last one.
func (r *run) replaceNode() {
	r.t.Helper()
	plan := *r.head.plan
	plan.Header, plan.Offers = record.Header{}, slices.Clone(plan.Offers)
	plan.Offers[len(plan.Offers)-1].NodeIndex = len(plan.Offers)
	if err := r.nodes[0].Publish(signal.ControlDir, signal.SeriesPlan.Name(1), &plan, false); err != nil {
		r.t.Fatal(err)
	}
}

// TestReplacedNode checks that a node that was taken for lost, and runs nevertheless, ends its part
// when another one has its place. The others go on.
func TestReplacedNode(t *testing.T) {
	for _, how := range []string{"its place is taken", "it has an order"} {
		t.Run(how, func(t *testing.T) { testReplacedNode(t, how == "it has an order") })
	}
}

func testReplacedNode(t *testing.T, isOrdered bool) {
	inBubble(t, 2, `
  - {name: server, nodes: all, command: serve, restarts: 3}
`, func(r *run) {
		if isOrdered {
			r.head.order(signal.LostName(1, 2))
		} else {
			r.replaceNode()
		}
		r.later()
		f, isFailure := errors.AsType[*health.Failure](context.Cause(r.nodes[1].RunCtx))
		if !isFailure || f.Kind != health.CutOff || !slices.Equal(f.LostNodes, []int{1}) {
			t.Errorf("the cause of its end is %v", context.Cause(r.nodes[1].RunCtx))
		}
		if err := r.nodes[0].RunCtx.Err(); err != nil {
			t.Errorf("the other node: %v", err)
		}
	})
}

// TestPlanIsReadAgain checks that a node reads a newer plan again if its first read hangs.
func TestPlanIsReadAgain(t *testing.T) {
	inBubble(t, 2, `
  - {name: server, nodes: all, command: serve, restarts: 3}
`, func(r *run) {
		defer r.hangRead(signal.SeriesPlan.Name(1))()
		r.replaceNode()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, n := range r.nodes {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			if !n.reading.Take(ctx) {
				t.Errorf("node %d still reads the plan", i)
			}
			cancel()
			if n.known().record.Number != 1 {
				t.Errorf("node %d knows plan %d", i, n.known().record.Number)
			}
		}
	})
}
