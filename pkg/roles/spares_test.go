package roles

import (
	"maps"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestSurvivesNodeLoss(t *testing.T) {
	all := Requirement{Start: QuorumAll, Run: QuorumAll}
	for _, tc := range []struct {
		name     string
		restarts int
		run      Quorum
		spares   Spares
		want     bool
	}{
		{"all instances are needed", 0, QuorumAll, nil, false},
		{"restarts without a spare", 3, QuorumAll, Spares{0: 0}, false},
		{"a spare without restarts", 0, QuorumAll, Spares{0: 1}, false},
		{"a spare of the second component", 3, QuorumAll, Spares{0: 0, 1: 1}, true},
		{"fewer instances", 0, 6, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			def := Definition{Required: all}
			def.Restarts.Max, def.Required.Run = tc.restarts, tc.run
			if got := tc.spares.SurvivesNodeLoss([]Definition{{Required: all}, def}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestSparesRemaining checks that a node that is not in the team takes a spare of its own group.
func TestSparesRemaining(t *testing.T) {
	env := launcher.EnvironmentOf([]string{"SLURM_JOB_ID=1", "SLURM_HET_SIZE=2",
		"SLURM_JOB_NODELIST_HET_GROUP_0=a[0-2]", "SLURM_JOB_NODELIST_HET_GROUP_1=b[0-1]"})
	hosts := []string{"a0", "a1", "a2", "b0", "b1"}
	for _, tc := range []struct {
		members      []int
		spares, want Spares
	}{
		{[]int{0, 1, 2, 3, 4}, Spares{0: 1}, Spares{0: 1}},
		{[]int{0, 2, 3, 4}, Spares{0: 1, 1: 1}, Spares{0: 0, 1: 1}},
		{[]int{0, 2, 3}, Spares{0: 2, 1: 1}, Spares{0: 1, 1: 0}},
		{[]int{0, 3}, Spares{0: 1}, Spares{0: 0, 1: 0}},
		{[]int{0, 3}, nil, nil},
	} {
		if got := tc.spares.Remaining(tc.members, hosts, env); !maps.Equal(got, tc.want) {
			t.Errorf("members %v of %v: got %v, want %v", tc.members, tc.spares, got, tc.want)
		}
	}
}
