package instances

import (
	"maps"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestRemainingSpares checks that a node that is not in the team takes a spare of its own group.
func TestRemainingSpares(t *testing.T) {
	env := launcher.EnvironmentOf([]string{"SLURM_JOB_ID=1", "SLURM_HET_SIZE=2", "SLURM_JOB_NODELIST_HET_GROUP_0=a[0-2]", "SLURM_JOB_NODELIST_HET_GROUP_1=b[0-1]"})
	hosts := []string{"a0", "a1", "a2", "b0", "b1"}
	for _, tc := range []struct {
		members      []int
		spares, want roles.Spares
	}{
		{[]int{0, 1, 2, 3, 4}, roles.Spares{0: 1}, roles.Spares{0: 1}},
		{[]int{0, 2, 3, 4}, roles.Spares{0: 1, 1: 1}, roles.Spares{0: 0, 1: 1}},
		{[]int{0, 2, 3}, roles.Spares{0: 2, 1: 1}, roles.Spares{0: 1, 1: 0}},
		{[]int{0, 3}, roles.Spares{0: 1}, roles.Spares{0: 0, 1: 0}},
		{[]int{0, 3}, nil, nil},
	} {
		if got := RemainingSpares(tc.spares, tc.members, hosts, env); !maps.Equal(got, tc.want) {
			t.Errorf("members %v of %v: got %v, want %v", tc.members, tc.spares, got, tc.want)
		}
	}
}
