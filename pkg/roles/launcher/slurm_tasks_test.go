package launcher

import (
	"strings"
	"testing"
)

func TestTaskCounts(t *testing.T) {
	for want, perNode := range map[string][]int{"2": {2}, "2(x3)": {2, 2, 2}, "2(x3),1": {2, 2, 2, 1}, "1,2,1(x2)": {1, 2, 1, 1}} {
		if got := formatTaskCounts(perNode); got != want {
			t.Errorf("%v: %s, not %s", perNode, got, want)
		}
	}
}

func TestTasksOn(t *testing.T) {
	for node, want := range []int{2, 2, 2, 1, 3, 0} {
		if got := taskCountOf("2(x3),1,3", node); got != want {
			t.Errorf("node %d: %d, not %d", node, got, want)
		}
	}
	for _, text := range []string{"", "x", "(x", "(x3)", "-"} {
		if got := taskCountOf(text, 0); got != 0 {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestIdle(t *testing.T) {
	for said, environ := range map[string][]string{
		"":                                     {"SLURM_STEP_NUM_NODES=3", "SLURM_JOB_NUM_NODES=3"},
		"this step has 1 of the job's 3 nodes": {"SLURM_STEP_NUM_NODES=1", "SLURM_JOB_NUM_NODES=3"},
	} {
		if got := IdleNodesHint(EnvironmentOf(environ)); !strings.HasPrefix(got, said) || (said == "") != (got == "") {
			t.Errorf("%q: %q", environ, got)
		}
	}
	if got := IdleNodesHint(EnvironmentOf([]string{"SLURM_JOB_NUM_NODES=3"})); got != "" {
		t.Errorf("where there is no step: %q", got)
	}
}

// TestSlurmSplitsGPUs checks environments that Slurm 22.05 passed to its tasks.
func TestSlurmSplitsGPUs(t *testing.T) {
	for _, tc := range []struct {
		asked, told string
		want        bool
	}{
		{"no GPUs", "", false},
		{"--gres=gpu:4", "SLURM_GPUS_ON_NODE=4 SLURM_STEP_GPUS=0,1,2,3", false},
		{"--gpus-per-task=2", "SLURMD_TRES_BIND=gpu:per_task:2 SLURM_GPUS_ON_NODE=4 SLURM_STEP_GPUS=2,3", true},
		{"--gpu-bind=single:1", "SLURMD_TRES_BIND=gpu:single:1 SLURM_GPUS_ON_NODE=4 SLURM_STEP_GPUS=1", true},
		{"--gpus-per-task=2 --gpu-bind=none", "SLURMD_TRES_BIND=gpu:none SLURM_GPUS_ON_NODE=4", false},
		{"a Slurm that tells less", "SLURM_GPUS_ON_NODE=4 SLURM_STEP_GPUS=2-3", true},
		{"one that tells even less", "SLURM_GPUS_ON_NODE=4", false},
	} {
		if got := slurmSplitsGPUs(EnvironmentOf(strings.Fields(tc.told))); got != tc.want {
			t.Errorf("%s: %v", tc.asked, got)
		}
	}
}
