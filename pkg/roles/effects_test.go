package roles

import (
	"testing"
	"time"
)

// planOfEffects has two roles on the same three nodes, one of which spans them, and a oneshot role.
func planOfEffects(t *testing.T, restarts, run int) *Plan {
	t.Helper()
	policy := RestartPolicy{Max: restarts, Window: time.Hour, MinBackoff: time.Second, MaxBackoff: time.Minute}
	all := Requirement{QuorumAll, QuorumAll}
	plan, err := MakePlan([]Definition{
		{Name: "server", Placement: Placement{Nodes: NodesAll, InstancesPerNode: 2},
			Restarts: policy, Required: Requirement{QuorumAll, Quorum(run)}},
		{Name: "world", Placement: Placement{Nodes: NodesAll, NodesPerInstance: NodesAll,
			RanksPerNode: 2}, Primary: true, Restarts: RestartPolicy{Window: time.Hour}, Required: all},
		{Name: "setup", Placement: Placement{Nodes: NodesAll}, Oneshot: true, Restarts: policy, Required: all},
	}, []NodeFacts{{Host: "a"}, {Host: "b"}, {Host: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestExitEffect(t *testing.T) {
	for _, tc := range []struct {
		name          string
		restarts, run int
		role          string
		index         int
		action        Action
		count         int
		ends          bool
	}{
		{"restarts, and enough others", 3, 5, "server", 1, ActionRestart, 3, false},
		{"restarts, and too few others", 2, 6, "server", 0, ActionRestart, 2, true},
		{"no restarts", 0, 5, "server", 5, ActionLose, 0, false},
		{"a primary", 3, 5, "world", 0, ActionLose, 0, true},
		{"a oneshot role", 1, 5, "setup", 2, ActionRestart, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			role := planOfEffects(t, tc.restarts, tc.run).FindRole(tc.role)
			e := ExitEffect(role, &role.Instances[tc.index])
			if e.Action != tc.action || e.Restarts != tc.count ||
				e.EndsRun != tc.ends || e.Left() != len(role.Instances)-1 {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestLossEffects(t *testing.T) {
	for _, tc := range []struct {
		name          string
		restarts, run int
		hasSpare      bool
		action        Action // of the servers
		ends          bool   // because of them
	}{
		{"no spare, and enough others", 3, 4, false, ActionLose, false},
		{"no spare, and too few others", 3, 5, false, ActionLose, true},
		{"a spare", 3, 6, true, ActionRestart, false},
		{"a spare without restarts", 0, 6, true, ActionLose, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			effects := planOfEffects(t, tc.restarts, tc.run).LossEffects(1, tc.hasSpare)
			servers, world, setup := effects[0], effects[1], effects[2]
			if servers.Action != tc.action || servers.EndsRun != tc.ends || servers.Left() != 4 ||
				servers.Instances[0].Index != 2 || servers.Instances[1].Index != 3 {
				t.Errorf("the servers: %+v", servers)
			}
			if world.Action != ActionLose || !world.EndsRun || len(world.Instances) != 1 ||
				len(setup.Instances) != 0 || setup.EndsRun {
				t.Errorf("the world: %+v, setup: %+v", world, setup)
			}
		})
	}
}
