package launcher

import (
	"strings"
	"testing"
)

func TestShortfalls(t *testing.T) {
	const step = "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_NODEID=0 "
	for _, tc := range []struct {
		name       string
		environ    string
		cpus, node int
		want       string // the problem, followed by its fix
	}{
		{"all of a node", step + "SLURM_JOB_GPUS=0,1 SLURM_STEP_GPUS=0,1", 8, 8, ""},
		{"no step", "SLURM_JOB_ID=17 SLURM_JOB_GPUS=0", 1, 8, ""},
		{"the batch shell", "SLURM_JOB_ID=17 SLURM_STEP_ID=4294967291 SLURM_JOB_GPUS=0", 1, 8, ""},
		{"no GPUs of two", step + "SLURM_JOB_GPUS=0,1", 8, 8, "the job has the GPUs 0,1 here, but this step has none; add --gpus-per-node=2 to srun"},
		{"no GPUs of a range", step + "SLURM_JOB_GPUS=0-3 SLURM_STEP_GPUS=", 8, 8, "the job has the GPUs 0-3 here, but this step has none; add --gpus-per-node=4 to srun"},
		{"one CPU of many", step, 1, 64, "this task may use 1 of the node's 64 CPUs, and no number was requested; add --cpus-per-task=N to srun and sbatch, or --exclusive for all"},
		{"as many as asked for", step + "SLURM_CPUS_PER_TASK=4", 4, 64, ""},
		{"as many as for a GPU", step + "SLURM_CPUS_PER_GPU=4", 4, 64, ""},
		{"a thread of each core", step, 32, 64, ""},
		{"not known", step, 0, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, s := range FindShortfalls(EnvironmentOf(strings.Fields(tc.environ)), tc.cpus, tc.node) {
				got = append(got, s.Problem+"; "+s.Fix)
			}
			if strings.Join(got, "|") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
