package roles_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// mark returns the mark of a generation of instance 0 on a node, with the number of its change.
func mark(node, generation int, state record.InstanceState, change int) record.InstanceMark {
	return record.InstanceMark{Node: node, Generation: generation, State: state, Change: change}
}

// evidence returns the evidence of an instance on nodes whose role has restarts.
func evidence(nodes, restarts int, marks ...record.InstanceMark) roles.Evidence {
	role := &roles.RolePlan{Definition: &roles.Definition{Restarts: roles.RestartPolicy{Max: restarts}}}
	e := roles.Evidence{Role: role, Started: true}
	for node := range nodes {
		e.Nodes = append(e.Nodes, node)
	}
	for _, m := range marks {
		e.Marks.Add(m)
	}
	return e
}

// parseMarks reads marks of the form NODE.GENERATION.STATE or NODE.GENERATION.STATE.CHANGE.
func parseMarks(text string) (marks []record.InstanceMark) {
	for word := range strings.FieldsSeq(text) {
		parts := append(strings.Split(word, "."), "0")
		node, _ := strconv.Atoi(parts[0])
		generation, _ := strconv.Atoi(parts[1])
		change, _ := strconv.Atoi(parts[3])
		marks = append(marks, mark(node, generation, record.InstanceState(parts[2]), change))
	}
	return marks
}

func TestFold(t *testing.T) {
	exit := func(generation int, restarts bool) func(*roles.Evidence) {
		return func(e *roles.Evidence) {
			e.Exit, e.ExitGeneration = &record.InstanceExit{WillRestart: restarts}, generation
		}
	}
	atStart := func(e *roles.Evidence) { e.ReadyAtStart = true }
	for _, tc := range []struct {
		name            string
		nodes, restarts int
		marks           string
		change          func(*roles.Evidence)
		want            string // status, generation, and whether it is gone
	}{
		{"nothing is known", 1, 0, "", nil, "starting 0"},
		{"its role waits", 1, 0, "", func(e *roles.Evidence) { e.Started = false }, "waiting 0"},
		{"ready", 1, 0, "0.0.ready", nil, "ready 0"},
		{"ready at the start", 2, 0, "", atStart, "ready 0"},
		{"ready at the start, and one is done", 2, 0, "0.0.done", atStart, "ready 0"},
		{"ready at the start, and done", 2, 0, "0.0.done 1.0.done", atStart, "done 0 gone"},
		{"ready at the start, and one has exited", 2, 1, "1.0.exited", atStart, "restarting 0"},
		{"ready at the start, not again", 2, 1, "0.1.ready", atStart, "starting 1"},
		{"ready at the start that has not come", 2, 0, "", func(e *roles.Evidence) {
			e.Started, e.ReadyAtStart = false, true
		}, "waiting 0"},
		{"its head's service is up", 1, 0, "0.0.head", nil, "starting 0"},
		{"ready after its head's service", 1, 0, "0.0.head 0.0.ready", nil, "ready 0"},
		{"ready before the mark of its head's service", 1, 0, "0.0.ready 0.0.head", nil, "ready 0"},
		{"one of two is ready", 2, 0, "0.0.ready", nil, "starting 0"},
		{"unready", 1, 0, "0.0.ready 0.0.unready.1", nil, "unready 0"},
		{"ready again", 1, 0, "0.0.ready.2 0.0.ready 0.0.unready.1", nil, "ready 0"},
		{"done after a change", 1, 0, "0.0.unready.1 0.0.done", nil, "done 0 gone"},
		{"stopped after a change", 1, 0, "0.0.unready.3 0.0.stopped", nil, "stopped 0 gone"},
		{"exited after a change", 1, 0, "0.0.unready.1 0.0.exited", nil, "lost 0 gone"},
		{"its node may restart it", 1, 1, "0.0.exited", nil, "restarting 0"},
		{"its node restarts it", 1, 1, "0.0.exited", exit(0, true), "restarting 0"},
		{"its node gives it up", 1, 1, "0.0.exited", exit(0, false), "lost 0 gone"},
		{"an older exit says nothing of a newer one", 1, 1, "0.1.exited", exit(0, false), "restarting 1"},
		{"started again by its node", 1, 1, "0.0.exited 0.1.ready", exit(0, true), "ready 1"},
		{"a late mark of an earlier generation", 1, 1, "0.1.ready 0.0.exited", nil, "ready 1"},
		{"the marks of the restart are lost", 1, 1, "0.0.ready 0.2.unready.1", nil, "unready 2"},
		{"one of two has exited", 2, 1, "0.0.exited 1.0.ready", nil, "restarting 0"},
		{"the other has stopped", 2, 1, "0.0.exited 1.0.stopped", nil, "restarting 0 gone"},
		{"the other is unready meanwhile", 2, 1, "0.0.exited 1.0.unready.1", nil, "restarting 0"},
		{"one is ready, and one done", 2, 0, "0.0.ready 1.0.done", nil, "ready 0"},
		{"the other is done", 2, 1, "0.0.exited 1.0.done", nil, "restarting 0 gone"},
		{"both are done", 2, 1, "0.0.done 1.0.done", nil, "done 0 gone"},
		{
			"the head has started it again", 2, 1, "0.0.exited 1.0.stopped",
			func(e *roles.Evidence) { e.Generation, e.FailedBefore = 1, 1 }, "starting 1",
		},
		{
			"given up while the other runs", 2, 1, "0.0.exited 1.0.ready",
			func(e *roles.Evidence) { e.GivenUp = true }, "lost 0",
		},
		{
			"a node is lost", 2, 1, "0.0.ready 1.0.ready",
			func(e *roles.Evidence) { e.LostNodes, e.FailedBefore = []int{1}, 1 }, "restarting 0",
		},
		{
			"both nodes are lost", 2, 1, "0.0.ready",
			func(e *roles.Evidence) { e.LostNodes, e.FailedBefore = []int{0, 1}, 1 }, "restarting 0 gone",
		},
		{
			"its only node is lost, and starts nothing", 1, 1, "0.0.ready",
			func(e *roles.Evidence) { e.LostNodes, e.FailedBefore = []int{0}, 1 }, "restarting 0 gone",
		},
		{
			"a lost node whose part was done", 2, 0, "0.0.done 1.0.done",
			func(e *roles.Evidence) { e.LostNodes = []int{1} }, "done 0 gone",
		},
		{
			"a spare has taken the place, and the others have stopped", 2, 1, "0.0.stopped 1.0.stopped",
			func(e *roles.Evidence) { e.FailedBefore = 1 }, "restarting 0 gone",
		},
		{
			"the end of the run, without marks", 1, 1, "0.0.ready",
			func(e *roles.Evidence) { e.RunEnded = true }, "stopped 0",
		},
		{
			"the end of the run during a restart", 1, 1, "0.0.exited",
			func(e *roles.Evidence) { e.RunEnded = true }, "stopped 0 gone",
		},
	} {
		e := evidence(tc.nodes, tc.restarts, parseMarks(tc.marks)...)
		if tc.change != nil {
			tc.change(&e)
		}
		state := roles.Fold(e)
		got := fmt.Sprint(state.Status, " ", state.Generation)
		if state.IsGone {
			got += " gone"
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestFoldIgnoresOrder checks that the state depends neither on the order of the marks nor on how
// often each was seen, and that no mark changes the state after the end of its generation.
func TestFoldIgnoresOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(46, 1))
	states := []record.InstanceState{
		record.InstanceReady, record.InstanceUnready, record.InstanceReady,
		record.InstanceExited, record.InstanceDone, record.InstanceStopped,
	}
	for range 2000 {
		nodes := 1 + rng.IntN(3)
		var marks []record.InstanceMark
		for range rng.IntN(12) {
			state := states[rng.IntN(len(states))]
			change := 2 * rng.IntN(3)
			if state == record.InstanceUnready {
				change++
			}
			marks = append(marks, mark(rng.IntN(nodes), rng.IntN(3), state, change))
		}
		first := roles.Fold(evidence(nodes, 1, marks...))
		again := slices.Concat(marks, marks[:rng.IntN(len(marks)+1)])
		rng.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		second := roles.Fold(evidence(nodes, 1, again...))
		first.Running, second.Running, first.Unknown, second.Unknown = nil, nil, nil, nil
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("%v: %+v\n%v: %+v", marks, first, again, second)
		}
	}
}

// TestMarksAdd checks that a mark that was added before, or that a later one has replaced, says
// nothing new.
func TestMarksAdd(t *testing.T) {
	var marks roles.Marks
	for _, tc := range []struct {
		mark  record.InstanceMark
		isNew bool
	}{
		{mark(0, 0, record.InstanceReady, 2), true},
		{mark(0, 0, record.InstanceReady, 2), false},
		{mark(0, 0, record.InstanceUnready, 1), false},
		{mark(0, 0, record.InstanceStopped, 0), true},
		{mark(0, 0, record.InstanceUnready, 3), false},
		{mark(0, 1, record.InstanceReady, 0), true},
		{mark(0, 0, record.InstanceExited, 0), false},
		{mark(1, 0, record.InstanceExited, 0), true},
	} {
		if got := marks.Add(tc.mark); got != tc.isNew {
			t.Errorf("%+v: new %t, want %t", tc.mark, got, tc.isNew)
		}
	}
	if newest, ok := marks.Newest(0); !ok || newest != mark(0, 1, record.InstanceReady, 0) {
		t.Errorf("the newest mark is %+v, %t", newest, ok)
	}
}

// TestCount checks which states of instances count as down: those that are starting again.
func TestCount(t *testing.T) {
	var count roles.Count
	for _, s := range []roles.InstanceState{
		{Status: roles.StatusReady}, {Status: roles.StatusReady, Generation: 2},
		{Status: roles.StatusDone, Generation: 1}, {Status: roles.StatusLost, Generation: 3},
		{Status: roles.StatusStarting}, {Status: roles.StatusStarting, Generation: 1},
		{Status: roles.StatusStarting, Generation: 2},
		{Status: roles.StatusRestarting}, {Status: roles.StatusUnready, Generation: 1},
		{Status: roles.StatusWaiting}, {Status: roles.StatusStopped, Generation: 1},
	} {
		count.Add(s)
	}
	if want := (roles.Count{Ready: 2, Done: 1, Lost: 1, Down: 3}); count != want {
		t.Errorf("the count is %+v, want %+v", count, want)
	}
}

// TestRequirements checks from the numbers of a role's instances whether the roles after it may start,
// and whether it has ended, if it is primary.
func TestRequirements(t *testing.T) {
	const all = roles.QuorumAll
	type (
		need  = roles.Requirement
		count = roles.Count
	)
	for name, tc := range map[string]struct {
		oneshot           bool
		need              need
		count             count
		isSatisfied, over bool
	}{
		"all are ready":             {false, need{Start: all, Run: all}, count{Ready: 3}, true, false},
		"one is not ready":          {false, need{Start: all, Run: all}, count{Ready: 2}, false, false},
		"enough are ready":          {false, need{Start: 2, Run: 1}, count{Ready: 2}, true, false},
		"the others have ended":     {false, need{Start: all, Run: all}, count{Ready: 1, Done: 2}, true, false},
		"all have ended":            {false, need{Start: all, Run: all}, count{Done: 3}, true, true},
		"enough have ended":         {false, need{Start: all, Run: 2}, count{Done: 2, Lost: 1}, false, true},
		"too few have ended":        {false, need{Start: 1, Run: 2}, count{Done: 1, Lost: 2}, true, false},
		"one runs, and one is lost": {false, need{Start: 1, Run: 1}, count{Ready: 1, Done: 1, Lost: 1}, true, false},
		"a oneshot role runs":       {true, need{Start: all, Run: all}, count{Ready: 1, Done: 2}, false, false},
		"a oneshot role has ended":  {true, need{Start: all, Run: all}, count{Done: 3}, true, true},
	} {
		role := &roles.RolePlan{
			Definition: &roles.Definition{Oneshot: tc.oneshot, Required: tc.need},
			Instances:  make([]roles.Instance, 3),
		}
		if got := role.IsSatisfied(tc.count); got != tc.isSatisfied {
			t.Errorf("%s: satisfied %t", name, got)
		}
		if got := role.HasEnded(tc.count); got != tc.over {
			t.Errorf("%s: ended %t", name, got)
		}
	}
}

// TestWasReady checks that an instance was ready only if all of its nodes were in one generation, and
// that it stays so.
func TestWasReady(t *testing.T) {
	ready, exited := record.InstanceReady, record.InstanceExited
	for name, tc := range map[string]struct {
		evidence roles.Evidence
		want     bool
	}{
		"never":                    {evidence(1, 1, mark(0, 0, exited, 0)), false},
		"now":                      {evidence(1, 1, mark(0, 0, ready, 0)), true},
		"before it has exited":     {evidence(1, 1, mark(0, 0, ready, 0), mark(0, 0, exited, 0)), true},
		"in an earlier generation": {evidence(1, 1, mark(0, 0, ready, 0), mark(0, 1, exited, 0)), true},
		"one of two":               {evidence(2, 1, mark(0, 0, ready, 0)), false},
		"both":                     {evidence(2, 1, mark(0, 1, ready, 0), mark(1, 1, ready, 0)), true},
		"one after the other":      {evidence(2, 1, mark(0, 0, ready, 0), mark(1, 1, ready, 0)), false},
		"both in the newer one, whose marks come first": {
			evidence(2, 1, mark(0, 1, ready, 0), mark(1, 1, ready, 0), mark(0, 0, ready, 0)), true,
		},
	} {
		if got := roles.Fold(tc.evidence).WasReady; got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
