package launcher

import (
	"slices"
	"strings"
	"testing"
)

func TestOrderInJob(t *testing.T) {
	for _, tc := range []struct{ run, job string }{
		{"53.0", "53"}, {"53.1", "53"}, {"53.12-a1", "53"}, {"53.0-r1", "53"}, {"53.0-r1-a2", "53"},
		{"53.0-r1-a2", "53.0"},
		{"53.0+c0ffee", "53"}, {"17", "17"}, {"17-a3", "17"}, {"17.eval-2", "17"},
		{"17.c0ffee-01", "17"}, {"train-a1", "train"},
	} {
		if _, is := OrderInJob(tc.run, tc.job); !is {
			t.Errorf("%s is not a run of %s", tc.run, tc.job)
		}
	}
	for _, tc := range []struct{ run, job string }{
		{"530.0", "53"}, {"53.0", "5"}, {"53.0-doctor", "53"}, {"train-x", "train"}, {"53.0", ""},
		{"53.10", "53.1"}, {"17-4", "17"},
	} {
		if order, is := OrderInJob(tc.run, tc.job); is {
			t.Errorf("%s is a run of %s: %v", tc.run, tc.job, order)
		}
	}
	byAge := []string{"53.0", "53.0-a1", "53.2", "53.10", "53.0-r1", "53.0-r2-a1"}
	sorted := slices.SortedFunc(slices.Values([]string{"53.10", "53.0-r2-a1", "53.2", "53.0-a1",
		"53.0-r1", "53.0"}), func(a, b string) int {
		first, _ := OrderInJob(a, "53")
		second, _ := OrderInJob(b, "53")
		return slices.Compare(first, second)
	})
	if !slices.Equal(sorted, byAge) {
		t.Errorf("the order is %v, want %v", sorted, byAge)
	}
}

func TestCountRestarts(t *testing.T) {
	for run, want := range map[string]int{"53.0": 0, "53.2": 0, "53.0-a1": 1, "53.0-r1": 1,
		"53.0-r2-a3": 5, "53.0-doctor": 0, "54.0-a1": 0} {
		if got := CountRestarts(run, "53"); got != want {
			t.Errorf("before %s were %d restarts, want %d", run, got, want)
		}
	}
	if got := CountRestarts("train-a2", ""); got != 0 {
		t.Errorf("a run of an unknown job had %d restarts, want 0", got)
	}
}

func TestAttemptName(t *testing.T) {
	for run, want := range map[string]string{
		"53.0": "53.0-a10", "53.0-r1-a9": "53.0-r1-a10", "train-a": "train-a-a10",
	} {
		if got := AttemptName(run, 10); got != want {
			t.Errorf("attempt 10 of %s is %s, want %s", run, got, want)
		}
	}
}

// TestJobNames has ids as the commands of the launchers print them.
func TestJobNames(t *testing.T) {
	for job, want := range map[string]string{
		"53": "53", "60+1": "60+1 60", "60+1.0": "60+1.0 60.0", "60.0+1": "60.0+1 60.0", // squeue
		"60.0+c0ffee": "60.0+c0ffee", "53.0-r1": "53.0-r1", "train.x": "train.x",
		"50_1": "50_1", "50_[3]": "50_[3] 50_3", "50_[3-9%2]": "50_[3-9%2] 50", "50_[3%2]": "50_[3%2] 50_3",
		"53.batch": "53.batch 53", "60+1.extern": "60+1.extern 60.extern 60", // sacct
		"53;cluster":              "53;cluster 53", // sbatch --parsable
		"16.pbs01":                "16.pbs01 16",   // qsub
		"16.pbs01.example.org":    "16.pbs01.example.org 16",
		"17[4]":                   "17[4] 17-4", // qstat -t, bjobs
		"17[4].pbs01":             "17[4].pbs01 17-4",
		"17[].pbs01":              "17[].pbs01 17", // qsub
		"ƒL7wjnw":                 "fL7wjnw",       // flux jobs, and with {id.f58plain}, {id.dec}, {id.hex} and so on
		"fL7wjnw":                 "fL7wjnw",
		"12549357568":             "12549357568 fL7wjnw",
		"0x2ec000000":             "0x2ec000000 fL7wjnw",
		"0000.0002.ec00.0000":     "0000.0002.ec00.0000 fL7wjnw",
		"job.0000.0002.ec00.0000": "job.0000.0002.ec00.0000 fL7wjnw",
		"18446744073709551616":    "18446744073709551616", // more than 64 bits
	} {
		if got := strings.Join(JobNames(job), " "); got != want {
			t.Errorf("%s becomes %s, want %s", job, got, want)
		}
	}
}

func TestIsWithinJob(t *testing.T) {
	for _, tc := range []struct {
		run, job string
		want     bool
	}{
		{"17-4", "17", true}, {"17-4-a1", "17", true}, {"17-4.eval", "17", true}, {"17", "17", false},
		{"17-a1", "17", false}, {"17-r1-a1", "17", false}, {"170-4", "17", false}, {"train-4", "train", false},
		{"fA-fB", "fA", true}, {"fA-fB-a1", "fA", true}, {"fA-fB-fC", "fA", true}, {"fA-fB", "fB", true},
		{"fA-fB-fC-a2", "fC", true}, {"fA-a1", "fA", false}, {"fA", "fA", false}, {"x-fB", "fB", false},
		{"fA-fBC", "fB", false}, {"fAB-fC", "fA", false},
	} {
		if got := IsWithinJob(tc.run, tc.job); got != tc.want {
			t.Errorf("that %s is within %s is %v", tc.run, tc.job, got)
		}
	}
}

func TestJobAliases(t *testing.T) {
	slurm := Identity{Launcher: LauncherSlurm, Job: "60"}
	for _, tc := range []struct {
		name string
		id   Identity
		env  []string
		want []string
	}{
		{"no array", slurm, nil, nil},
		{"an element", slurm, []string{"SLURM_ARRAY_JOB_ID=50", "SLURM_ARRAY_TASK_ID=1"}, []string{"50_1"}},
		{"no number", slurm, []string{"SLURM_ARRAY_JOB_ID=50", "SLURM_ARRAY_TASK_ID=../1"}, nil},
		{"components", slurm, []string{"SLURM_HET_SIZE=2", "SLURM_JOB_ID_HET_GROUP_0=60",
			"SLURM_JOB_ID_HET_GROUP_1=61"}, []string{"61"}},
		{"another launcher", Identity{Launcher: LauncherPBS},
			[]string{"SLURM_ARRAY_JOB_ID=50", "SLURM_ARRAY_TASK_ID=1"}, nil},
		{"PBS", Identity{Launcher: LauncherPBS}, []string{"PBS_JOBID=17[4].pbs01"}, []string{"17[4].pbs01"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.id.JobAliases(EnvironmentOf(tc.env)); !slices.Equal(got, tc.want) {
				t.Errorf("they are %v, want %v", got, tc.want)
			}
		})
	}
}
