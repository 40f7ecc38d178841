package launcher

import (
	"reflect"
	"strings"
	"testing"
)

func TestSlurmComponents(t *testing.T) {
	for _, tc := range []struct {
		name    string
		environ string
		want    [][]string
		message string
		lastOf  int // the component of the last host
	}{
		{name: "no job", environ: "SLURM_JOB_NODELIST=n1"},
		{name: "a job without a list", environ: "SLURM_JOB_ID=1"},
		{name: "a job", environ: "SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n[1-2]", want: [][]string{{"n1", "n2"}}},
		{
			name: "a heterogeneous job",
			environ: "SLURM_JOB_ID=1 SLURM_HET_SIZE=2 SLURM_JOB_NODELIST=n3 " +
				"SLURM_JOB_NODELIST_HET_GROUP_0=n3 SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2]",
			want: [][]string{{"n3"}, {"n1", "n2"}}, lastOf: 1,
		},
		{name: "a wrong list", environ: "SLURM_JOB_ID=1 SLURM_JOB_NODELIST=n[",
			message: "cannot use SLURM_JOB_NODELIST=n["},
		{name: "a component without a list", environ: "SLURM_JOB_ID=1 SLURM_HET_SIZE=2 " +
			"SLURM_JOB_NODELIST_HET_GROUP_0=n3", message: "cannot use SLURM_JOB_NODELIST_HET_GROUP_1="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := EnvironmentOf(strings.Fields(tc.environ))
			got, err := SlurmComponents(env)
			if tc.message != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.message) {
					t.Errorf("got %v, want %s", err, tc.message)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
			if component := ComponentOf(env, "n2"); component != tc.lastOf {
				t.Errorf("got component %d of n2, want %d", component, tc.lastOf)
			}
		})
	}
}
