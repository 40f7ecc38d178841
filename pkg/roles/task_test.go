package roles

import "testing"

func TestTaskCounts(t *testing.T) {
	for want, perNode := range map[string][]int{"2": {2}, "2(x3)": {2, 2, 2}, "2(x3),1": {2, 2, 2, 1}, "1,2,1(x2)": {1, 2, 1, 1}} {
		if got := taskCounts(perNode); got != want {
			t.Errorf("%v: %s, not %s", perNode, got, want)
		}
	}
}

func TestTaskVariablesOutsideOfSlurm(t *testing.T) {
	set := TaskVariables([]string{"HOME=/h", "PMI_RANK=3", "PALS_RANKID=4"}, Task{Rank: 1, Ranks: 2, PerNode: []int{1, 1}, OnNode: []int{1}})
	for _, name := range []string{"PMI_RANK", "PALS_RANKID"} {
		if value, there := set[name]; !there || value != "" {
			t.Errorf("%s is %q, %v", name, value, there)
		}
	}
	if _, there := set["SLURM_PROCID"]; there || len(set) != 2 {
		t.Errorf("more is set: %v", set)
	}
}
