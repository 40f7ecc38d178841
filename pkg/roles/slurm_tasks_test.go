package roles

import "testing"

func TestTaskCounts(t *testing.T) {
	for want, perNode := range map[string][]int{"2": {2}, "2(x3)": {2, 2, 2}, "2(x3),1": {2, 2, 2, 1}, "1,2,1(x2)": {1, 2, 1, 1}} {
		if got := taskCounts(perNode); got != want {
			t.Errorf("%v: %s, not %s", perNode, got, want)
		}
	}
}

func TestTasksOn(t *testing.T) {
	for node, want := range []int{2, 2, 2, 1, 3, 0} {
		if got := tasksOn("2(x3),1,3", node); got != want {
			t.Errorf("node %d: %d, not %d", node, got, want)
		}
	}
	for _, text := range []string{"", "x", "(x", "(x3)", "-"} {
		if got := tasksOn(text, 0); got != 0 {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestSlurmSplitsGPUs(t *testing.T) {
	for text, want := range map[string]bool{
		"SLURM_GPUS_PER_NODE=4": false, "SLURM_GPUS_PER_TASK=2": true, "SLURM_NTASKS_PER_GPU=2": true, "SLURM_GPU_BIND=closest": true, "SLURM_GPU_BIND=none": false,
		"SLURM_GPU_BIND=verbose,none": false, "SLURM_TRES_PER_TASK=cpu=2": false, "SLURM_TRES_PER_TASK=cpu=2,gres/gpu=1": true, "SLURM_TRES_BIND=gres/gpu:per_task:1": true,
	} {
		if got := slurmSplitsGPUs(EnvironmentOf([]string{text})); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
