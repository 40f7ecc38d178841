package launcher

import "testing"

// TestLeavesErrors verifies that a task leaves an error to the first one of its own launch only.
func TestLeavesErrors(t *testing.T) {
	slurm := []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=4", "SLURM_NNODES=4"}
	for _, tc := range []struct {
		name string
		env  []string
		want bool
	}{
		{"nothing", nil, false},
		{"the first task", append(slurm, "SLURM_PROCID=0"), false},
		{"another task", append(slurm, "SLURM_PROCID=3"), true},
		{"the first process of an mpirun in another task", []string{"SLURM_JOB_ID=7", "SLURM_PROCID=3",
			"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"}, false},
		{"the second one", []string{"SLURM_JOB_ID=7", "SLURM_PROCID=0", "OMPI_COMM_WORLD_RANK=1",
			"OMPI_COMM_WORLD_SIZE=2"}, true},
		{"what a rank runs", []string{"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=3", "BRINGUPD_RANK=1"}, false},
	} {
		if got := LeavesErrors(EnvironmentOf(tc.env)); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
