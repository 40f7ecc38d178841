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
	if got := JobVariables(); !slices.Equal(got, []string{"FLUX_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
		t.Errorf("a job is known by %v", got)
	}
}
