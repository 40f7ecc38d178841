package launcher

import (
	"maps"
	"testing"
)

func TestSubsetVariables(t *testing.T) {
	step := EnvironmentOf([]string{"SLURM_STEP_NODELIST=n[0-2]", "SLURM_NNODES=3", "SLURM_NODEID=2"})
	of := func(list, count string) map[string]string {
		return map[string]string{"SLURM_NODELIST": list, "SLURM_STEP_NODELIST": list,
			"SLURM_NNODES": count, "SLURM_STEP_NUM_NODES": count}
	}
	with := of("n1,n2", "2")
	with["SLURM_NODEID"] = "1"
	for _, tc := range []struct {
		name  string
		env   Environment
		nodes []string
		index int
		want  map[string]string
	}{
		{"the second of two nodes", step, []string{"n1", "n2"}, 1, with},
		{"a node that stays as it is", step, []string{"n0"}, -1, of("n0", "1")},
		{"two daemons of a host", step, []string{"n0", "n0"}, 0, nil},
		{"no step", EnvironmentOf(nil), []string{"n0"}, 0, nil},
	} {
		if got := SubsetVariables(tc.env, tc.nodes, tc.index); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
