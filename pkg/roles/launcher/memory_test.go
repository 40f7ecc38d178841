package launcher

import "testing"

// TestGrantedMemory verifies how much memory, according to Slurm, a step may use on its node (R3).
func TestGrantedMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		environ []string
		want    int64
	}{
		"--mem=500":                  {[]string{"SLURM_MEM_PER_NODE=500", "SLURM_CPUS_ON_NODE=8"}, 500 << 20},
		"--mem=0":                    {[]string{"SLURM_MEM_PER_NODE=0"}, 0},
		"--mem-per-cpu=100":          {[]string{"SLURM_MEM_PER_CPU=100", "SLURM_CPUS_ON_NODE=8"}, 800 << 20},
		"sbatch's --cpus-per-task":   {[]string{"SLURM_MEM_PER_CPU=100", "SLURM_CPUS_ON_NODE=8", "SLURM_CPUS_PER_TASK=2"}, 800 << 20},
		"--mem-per-cpu without CPUs": {[]string{"SLURM_MEM_PER_CPU=100"}, 0},
		"--mem-per-gpu=1G":           {[]string{"SLURM_MEM_PER_GPU=1024", "SLURM_GPUS_ON_NODE=4"}, 4 << 30},
		"asked of srun by a user":    {[]string{"SLURM_MEM_PER_NODE=4G"}, 0},
		"another launcher":           {[]string{"PBS_JOBID=7"}, 0},
	} {
		if got := GrantedMemory(tc.environ); got != tc.want {
			t.Errorf("%s: it is %d, want %d", name, got, tc.want)
		}
	}
}
