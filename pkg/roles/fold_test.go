package roles_test

import (
	"math/rand/v2"
	"slices"
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

func TestFold(t *testing.T) {
	ready, unready, exited, done, stopped := record.InstanceReady, record.InstanceUnready, record.InstanceExited, record.InstanceDone, record.InstanceStopped
	type want struct {
		status     roles.InstanceStatus
		generation int
		gone       bool
	}
	exit := func(e roles.Evidence, generation int, restarts bool) roles.Evidence {
		e.Exit, e.ExitGeneration = &record.InstanceExit{WillRestart: restarts}, generation
		return e
	}
	change := func(e roles.Evidence, with func(*roles.Evidence)) roles.Evidence {
		with(&e)
		return e
	}
	for name, tc := range map[string]struct {
		evidence roles.Evidence
		want     want
	}{
		"nothing is known": {evidence(1, 0), want{roles.StatusStarting, 0, false}},
		"its role waits":   {change(evidence(1, 0), func(e *roles.Evidence) { e.Started = false }), want{roles.StatusWaiting, 0, false}},
		"ready":            {evidence(1, 0, mark(0, 0, ready, 0)), want{roles.StatusReady, 0, false}},
		"its head's service is up": {
			evidence(1, 0, mark(0, 0, record.InstanceHead, 0)), want{roles.StatusStarting, 0, false},
		},
		"ready after its head's service": {
			evidence(1, 0, mark(0, 0, record.InstanceHead, 0), mark(0, 0, ready, 0)), want{roles.StatusReady, 0, false},
		},
		"ready before the mark of its head's service": {
			evidence(1, 0, mark(0, 0, ready, 0), mark(0, 0, record.InstanceHead, 0)), want{roles.StatusReady, 0, false},
		},
		"one of two is ready":                       {evidence(2, 0, mark(0, 0, ready, 0)), want{roles.StatusStarting, 0, false}},
		"unready":                                   {evidence(1, 0, mark(0, 0, ready, 0), mark(0, 0, unready, 1)), want{roles.StatusUnready, 0, false}},
		"ready again":                               {evidence(1, 0, mark(0, 0, ready, 2), mark(0, 0, ready, 0), mark(0, 0, unready, 1)), want{roles.StatusReady, 0, false}},
		"done after a change":                       {evidence(1, 0, mark(0, 0, unready, 1), mark(0, 0, done, 0)), want{roles.StatusDone, 0, true}},
		"stopped after a change":                    {evidence(1, 0, mark(0, 0, unready, 3), mark(0, 0, stopped, 0)), want{roles.StatusStopped, 0, true}},
		"exited after a change":                     {evidence(1, 0, mark(0, 0, unready, 1), mark(0, 0, exited, 0)), want{roles.StatusLost, 0, true}},
		"its node may restart it":                   {evidence(1, 1, mark(0, 0, exited, 0)), want{roles.StatusRestarting, 0, false}},
		"its node restarts it":                      {exit(evidence(1, 1, mark(0, 0, exited, 0)), 0, true), want{roles.StatusRestarting, 0, false}},
		"its node gives it up":                      {exit(evidence(1, 1, mark(0, 0, exited, 0)), 0, false), want{roles.StatusLost, 0, true}},
		"an older exit says nothing of a newer one": {exit(evidence(1, 1, mark(0, 1, exited, 0)), 0, false), want{roles.StatusRestarting, 1, false}},
		"started again by its node":                 {exit(evidence(1, 1, mark(0, 0, exited, 0), mark(0, 1, ready, 0)), 0, true), want{roles.StatusReady, 1, false}},
		"a late mark of an earlier generation":      {evidence(1, 1, mark(0, 1, ready, 0), mark(0, 0, exited, 0)), want{roles.StatusReady, 1, false}},
		"the marks of the restart are lost":         {evidence(1, 1, mark(0, 0, ready, 0), mark(0, 2, unready, 1)), want{roles.StatusUnready, 2, false}},
		"one of two has exited":                     {evidence(2, 1, mark(0, 0, exited, 0), mark(1, 0, ready, 0)), want{roles.StatusRestarting, 0, false}},
		"the other has stopped":                     {evidence(2, 1, mark(0, 0, exited, 0), mark(1, 0, stopped, 0)), want{roles.StatusRestarting, 0, true}},
		"the other is unready meanwhile":            {evidence(2, 1, mark(0, 0, exited, 0), mark(1, 0, unready, 1)), want{roles.StatusRestarting, 0, false}},
		"one is ready, and one done":                {evidence(2, 0, mark(0, 0, ready, 0), mark(1, 0, done, 0)), want{roles.StatusReady, 0, false}},
		"the other is done":                         {evidence(2, 1, mark(0, 0, exited, 0), mark(1, 0, done, 0)), want{roles.StatusRestarting, 0, true}},
		"both are done":                             {evidence(2, 1, mark(0, 0, done, 0), mark(1, 0, done, 0)), want{roles.StatusDone, 0, true}},
		"the head has started it again": {
			change(evidence(2, 1, mark(0, 0, exited, 0), mark(1, 0, stopped, 0)), func(e *roles.Evidence) { e.Generation, e.FailedBefore = 1, 1 }),
			want{roles.StatusStarting, 1, false},
		},
		"given up while the other runs": {
			change(evidence(2, 1, mark(0, 0, exited, 0), mark(1, 0, ready, 0)), func(e *roles.Evidence) { e.GivenUp = true }),
			want{roles.StatusLost, 0, false},
		},
		"a node is lost": {
			change(evidence(2, 1, mark(0, 0, ready, 0), mark(1, 0, ready, 0)), func(e *roles.Evidence) { e.LostNodes, e.FailedBefore = []int{1}, 1 }),
			want{roles.StatusRestarting, 0, false},
		},
		"both nodes are lost": {
			change(evidence(2, 1, mark(0, 0, ready, 0)), func(e *roles.Evidence) { e.LostNodes, e.FailedBefore = []int{0, 1}, 1 }),
			want{roles.StatusRestarting, 0, true},
		},
		"its only node is lost, and starts nothing": {
			change(evidence(1, 1, mark(0, 0, ready, 0)), func(e *roles.Evidence) { e.LostNodes, e.FailedBefore = []int{0}, 1 }),
			want{roles.StatusRestarting, 0, true},
		},
		"a lost node whose part was done": {
			change(evidence(2, 0, mark(0, 0, done, 0), mark(1, 0, done, 0)), func(e *roles.Evidence) { e.LostNodes = []int{1} }),
			want{roles.StatusDone, 0, true},
		},
		"a spare has taken the place, and the others have stopped": {
			change(evidence(2, 1, mark(0, 0, stopped, 0), mark(1, 0, stopped, 0)), func(e *roles.Evidence) { e.FailedBefore = 1 }),
			want{roles.StatusRestarting, 0, true},
		},
		"the end of the run, without marks": {
			change(evidence(1, 1, mark(0, 0, ready, 0)), func(e *roles.Evidence) { e.RunEnded = true }),
			want{roles.StatusStopped, 0, false},
		},
		"the end of the run during a restart": {
			change(evidence(1, 1, mark(0, 0, exited, 0)), func(e *roles.Evidence) { e.RunEnded = true }),
			want{roles.StatusStopped, 0, true},
		},
	} {
		got := roles.Fold(tc.evidence)
		if got := (want{got.Status, got.Generation, got.IsGone}); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestFoldIgnoresOrder checks that the state depends neither on the order of the marks nor on how
// often each was seen, and that no mark changes the state after the end of its generation.
func TestFoldIgnoresOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(46, 1))
	states := []record.InstanceState{record.InstanceReady, record.InstanceUnready, record.InstanceReady, record.InstanceExited, record.InstanceDone, record.InstanceStopped}
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
		if first.Status != second.Status || first.Generation != second.Generation || first.IsGone != second.IsGone || first.WasReady != second.WasReady {
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
	for name, tc := range map[string]struct {
		oneshot           bool
		need              roles.Requirement
		count             roles.Count
		isSatisfied, over bool
	}{
		"all are ready":             {false, roles.Requirement{Start: all, Run: all}, roles.Count{Ready: 3}, true, false},
		"one is not ready":          {false, roles.Requirement{Start: all, Run: all}, roles.Count{Ready: 2}, false, false},
		"enough are ready":          {false, roles.Requirement{Start: 2, Run: 1}, roles.Count{Ready: 2}, true, false},
		"the others have ended":     {false, roles.Requirement{Start: all, Run: all}, roles.Count{Ready: 1, Done: 2}, true, false},
		"all have ended":            {false, roles.Requirement{Start: all, Run: all}, roles.Count{Done: 3}, true, true},
		"enough have ended":         {false, roles.Requirement{Start: all, Run: 2}, roles.Count{Done: 2, Lost: 1}, false, true},
		"too few have ended":        {false, roles.Requirement{Start: 1, Run: 2}, roles.Count{Done: 1, Lost: 2}, true, false},
		"one runs, and one is lost": {false, roles.Requirement{Start: 1, Run: 1}, roles.Count{Ready: 1, Done: 1, Lost: 1}, true, false},
		"a oneshot role runs":       {true, roles.Requirement{Start: all, Run: all}, roles.Count{Ready: 1, Done: 2}, false, false},
		"a oneshot role has ended":  {true, roles.Requirement{Start: all, Run: all}, roles.Count{Done: 3}, true, true},
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
