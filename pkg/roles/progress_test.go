package roles_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// instanceOn returns an instance with a process on each place.
func instanceOn(number int, places ...int) roles.Instance {
	instance := roles.Instance{Number: number, Index: number}
	for rank, place := range places {
		instance.Processes = append(instance.Processes, roles.Process{Rank: rank, Place: place})
	}
	return instance
}

// TestLateInstances verifies which instances are late, and that each names its first process that is not
// ready, with its log.
func TestLateInstances(t *testing.T) {
	judge := &roles.RolePlan{Definition: &roles.Definition{Name: "judge",
		Required: roles.Requirement{Start: roles.QuorumAll}},
		Instances: []roles.Instance{instanceOn(0, 0, 1), instanceOn(1, 2, 3), instanceOn(2, 4), instanceOn(3, 5)}}
	progress, since := roles.Progress{RolePlan: judge}, time.Unix(1000, 0)
	for i, state := range []roles.InstanceState{
		{Status: roles.StatusStarting, LateNode: 7, Generation: 2},
		{Status: roles.StatusReady, LateNode: -1},
		{Status: roles.StatusRestarting, LateNode: 9},
		{Status: roles.StatusWaiting, LateNode: 3},
	} {
		nodes := [][]int{{6, 7}, {2, 3}, {9}, {3}}[i]
		progress.AddInstance(&judge.Instances[i], state, nodes, 10, since)
	}
	want := []roles.LateInstance{
		{Name: "judge.0", Status: roles.StatusStarting, Node: 7, Log: "judge-0.1.g2.log", Since: since},
		{Name: "judge.2", Status: roles.StatusRestarting, Node: 9, Log: "judge-2.log", Since: since},
	}
	if diff := cmp.Diff(want, progress.Late); diff != "" {
		t.Error(diff)
	}
	if progress.Ready != 1 || progress.Down != 2 || progress.IsMet() {
		t.Errorf("the counts are %+v", progress.Count)
	}
}

func TestLogName(t *testing.T) {
	instance := instanceOn(3, 2)
	for _, tc := range []struct {
		kind       roles.BuiltIn
		log        string
		generation int
		want       string
	}{
		{"", "", 0, "judge-3.log"},
		{"", "", 1, "judge-3.g1.log"},
		{roles.BuiltInHead, "ray-head", 0, "ray-head.log"},
		{roles.BuiltInDriver, "driver", 0, "driver.log"},
		{roles.BuiltInWorker, "ray-worker", 4, "ray-worker-0007.log"}, // of a place since plan 4
		{roles.BuiltInSandbox, "sandbox", 0, "sandbox-0007.log"},
		{roles.BuiltInRanks, "rank", 1, "rank-0000.g1.log"},
	} {
		role := &roles.RolePlan{Definition: &roles.Definition{Name: "judge", BuiltIn: tc.kind,
			Program: roles.Program{Log: tc.log}}}
		if got := role.LogName(&instance, instance.Processes[0], tc.generation, 7, 64); got != tc.want {
			t.Errorf("the log of %q in generation %d is %s, not %s", tc.kind, tc.generation, got, tc.want)
		}
	}
}

// TestWithProcesses verifies that instances without a process are left out.
func TestWithProcesses(t *testing.T) {
	worker := func(program roles.Program) *roles.RolePlan {
		return &roles.RolePlan{Definition: &roles.Definition{Name: "worker", BuiltIn: roles.BuiltInWorker,
			Program: program}, Instances: []roles.Instance{instanceOn(0, 0), instanceOn(1, 1)}}
	}
	file := worker(roles.Program{})
	file.BuiltIn = ""
	alone := worker(roles.Program{Log: "ray-worker", NotOnHead: true})
	alone.Instances = alone.Instances[:1]
	for name, tc := range map[string]struct {
		role  *roles.RolePlan
		count int
	}{
		"of a file":           {file, 2},
		"on all nodes":        {worker(roles.Program{Log: "worker"}), 2},
		"without a program":   {worker(roles.Program{}), 0},
		"not on the head":     {worker(roles.Program{Log: "ray-worker", NotOnHead: true}), 1},
		"on the head's alone": {alone, 0},
	} {
		shown, ok := roles.WithProcesses(tc.role)
		if ok != (tc.count > 0) || ok && len(shown.Instances) != tc.count {
			t.Errorf("a role %s: %t, %+v", name, ok, shown)
		}
	}
}

// TestServiceMarks verifies what the states of nodes say about the instances of built-in services.
func TestServiceMarks(t *testing.T) {
	listing := (&signal.DirSnapshot{Names: []string{
		signal.NodeName(0, 4, record.StateSandboxReady), signal.NodeName(1, 4, record.StateSandboxReady),
		signal.NodeName(1, 4, record.StateSandboxFailed), signal.NodeName(2, 4, record.StateServiceUp),
		signal.NodeName(3, 4, signal.ServiceUpState(2)),
	}}).ParseListing(4)
	marks := roles.NewServiceMarks(listing, true)
	for _, tc := range []struct {
		kind        roles.BuiltIn
		node, since int
		want        record.InstanceState // empty: none
	}{
		{roles.BuiltInHead, 0, 0, record.InstanceReady},
		{roles.BuiltInHead, 1, 0, ""},
		{roles.BuiltInSandbox, 0, 0, record.InstanceReady},
		{roles.BuiltInSandbox, 1, 0, record.InstanceExited},
		{roles.BuiltInSandbox, 2, 0, ""},
		{roles.BuiltInWorker, 2, 0, record.InstanceReady},
		{roles.BuiltInWorker, 3, 0, ""},
		{roles.BuiltInWorker, 3, 2, record.InstanceReady},
		{roles.BuiltInDriver, 0, 0, ""},
	} {
		mark, ok := marks.Of(tc.kind, 5, tc.node, tc.since)
		if ok != (tc.want != "") || ok && (mark != record.InstanceMark{
			Node: tc.node, Instance: 5, Generation: tc.since, State: tc.want}) {
			t.Errorf("the mark of the %s on node %d is %+v, %t", tc.kind, tc.node, mark, ok)
		}
	}
}
