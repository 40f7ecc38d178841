package roles

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestHistory verifies for an instance on two nodes which orders follow from each exit, once, until its
// restarts are used up, and that the number of exits that are remembered is bounded.
func TestHistory(t *testing.T) {
	const restarts = 5
	role := &RolePlan{Definition: &Definition{Restarts: RestartPolicy{Max: restarts, Window: time.Hour}}}
	instance := &Instance{Processes: []Process{{Place: 0}, {Rank: 1, Place: 1}}}
	rec := &PlanRecord{Offers: []NodeFacts{{NodeIndex: 0}, {NodeIndex: 1}}}
	h := NewHistory(role, instance, rec, StartWithPlan)
	now := time.Now()
	wantOrders := func(want ...string) {
		t.Helper()
		if got, _ := h.TakeOrders(now); !slices.Equal(got, want) {
			t.Errorf("generation %d: the orders are %v, want %v", h.Generation, got, want)
		}
		if got, _ := h.TakeOrders(now); got != nil {
			t.Errorf("generation %d: the orders are repeated: %v", h.Generation, got)
		}
	}
	mark := func(node int, state record.InstanceState) record.InstanceMark {
		return record.InstanceMark{Node: node, Generation: h.Generation, State: state}
	}
	for generation := range restarts + 1 {
		h.AddMark(mark(0, record.InstanceReady))
		h.AddMark(mark(1, record.InstanceReady))
		wantOrders()
		exit := mark(1, record.InstanceExited)
		if isNew, isExit := h.AddMark(exit); !isNew || !isExit {
			t.Errorf("generation %d: new %t, an exit %t", generation, isNew, isExit)
		}
		want := ExitRestarts
		if generation == restarts {
			want = ExitIsLoss
		}
		if got := h.RecordExit(exit, &record.InstanceExit{}, Exit{Code: 1}, now); got != want {
			t.Fatalf("generation %d: got %d, want %d", generation, got, want)
		}
		if got := h.RecordExit(exit, &record.InstanceExit{}, Exit{Code: 1}, now); got != ExitIgnored {
			t.Errorf("generation %d: the same exit again: %d", generation, got)
		}
		wantOrders(signal.OrderName(0, generation+1, signal.OrderStop))
		h.AddMark(mark(0, record.InstanceStopped))
		if want == ExitRestarts {
			wantOrders(signal.OrderName(0, generation+1, signal.OrderStart))
		}
	}
	if wantOrders(); !h.IsEnded() || h.MayRun() || len(h.handled) > KeptGenerations {
		t.Errorf("ended %t, may run %t, remembers %d exits", h.IsEnded(), h.MayRun(), len(h.handled))
	}
}

// TestEndOrder verifies which daemons stop a level only by an order: those that do not follow all levels
// before it by themselves.
func TestEndOrder(t *testing.T) {
	defs := []Definition{named("store"), named("cache", "store"), {Name: "main", Primary: true}}
	plan := &Plan{Roles: []RolePlan{{Definition: &defs[0], Nodes: []int{0}},
		{Definition: &defs[1], Nodes: []int{0, 1}}, {Definition: &defs[2], Nodes: []int{0}}}}
	first, second := EndMember{}, EndMember{Place: 1}
	for _, tc := range []struct {
		afterPrimaries bool
		want           [][]EndMember // by level: main, cache, store
	}{
		{true, [][]EndMember{nil, nil, {first}}},
		{false, [][]EndMember{nil, {second}, {first}}},
	} {
		for level, want := range tc.want {
			got := EndOrder{Defs: defs, Plan: plan, AfterPrimaries: tc.afterPrimaries}.Awaiting(level)
			if !slices.Equal(got, want) {
				t.Errorf("after the primaries %t: level %d is awaited by %v, want %v", tc.afterPrimaries,
					level, got, want)
			}
		}
	}
}
