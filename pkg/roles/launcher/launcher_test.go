package launcher

import (
	"slices"
	"strings"
	"testing"
)

func TestIsOther(t *testing.T) {
	for _, tc := range []struct {
		made, now, job string
		other          bool
	}{
		{"SLURM_JOB_ID=17", "SLURM_JOB_ID=17", "SLURM_JOB_ID=17", false},
		{"SLURM_JOB_ID=17", "SLURM_JOB_ID=18", "SLURM_JOB_ID=17", true},
		{"SLURM_JOB_ID=17", "PATH=/bin", "SLURM_JOB_ID=17", false},
		{"PATH=/bin", "SLURM_JOB_ID=18", NoJob, true},
		{"PATH=/bin", "PATH=/bin", NoJob, false},
		{"SLURM_JOB_ID=17 FLUX_JOB_ID=f1", "SLURM_JOB_ID=18 FLUX_JOB_ID=f1", "FLUX_JOB_ID=f1 SLURM_JOB_ID=17", true},
	} {
		job := JobIdentity(EnvironmentOf(strings.Fields(tc.made)))
		if other := IsOtherJob(EnvironmentOf(strings.Fields(tc.now)), job); job != tc.job || other != tc.other {
			t.Errorf("%q is job %q, and %q is another: %v", tc.made, job, tc.now, other)
		}
	}
}

func TestPrivate(t *testing.T) {
	for _, name := range []string{"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_JOBID",
		"SLURM_JOB_NODELIST", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK", "FLUX_JOB_ID",
		"PBS_NODENUM", "PBS_NODEFILE", "LSB_HOSTS", "PALS_APID", "JSM_NAMESPACE_RANK", "MV2_COMM_WORLD_RANK"} {
		if !IsPrivateVariable(name) {
			t.Errorf("%s reaches the services", name)
		}
	}
	for _, name := range []string{"PATH", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_TMPDIR",
		"SLURM_ARRAY_TASK_ID", "SLURMD_NODENAME", "PBS_JOBID", "PBS_O_WORKDIR", "LSB_JOBID",
		"FLUX_URI", "MY_SLURM_JOB", "RANK", "MPI_HOME", "JOB_ID", "LSF_BINDIR",
		"KUBERNETES_SERVICE_HOST", "MV2_USE_CUDA"} {
		if IsPrivateVariable(name) {
			t.Errorf("%s does not reach the services", name)
		}
	}
	if got := JobVariables(); !slices.Equal(got, []string{"FLUX_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
		t.Errorf("a job is known by %v", got)
	}
}
