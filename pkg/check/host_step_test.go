package check

import (
	"maps"
	"testing"
)

func TestLookStep(t *testing.T) {
	files := map[string]string{
		"proc/self/status":              "Name:\tbringupd\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n",
		"sys/devices/system/cpu/online": "0-15\n",
	}
	step := []string{"SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_NODEID=0"}
	srun := map[string]string{
		"proc/7/comm": "srun\n", "proc/7/cmdline": "srun\x00-K1\x00bringupd\x00", "proc/7/environ": "HOME=/\x00SLURM_JOB_ID=17\x00",
		"proc/8/comm": "srun\n", // of another user
		"proc/9/comm": "sh\n", "proc/9/cmdline": "srun\x00", "proc/9/environ": "SLURM_JOB_ID=17\x00",
	}
	safe := maps.Clone(srun)
	safe["proc/7/cmdline"] = "srun\x00--no-kill\x00--kill-on-bad-exit=0\x00bringupd\x00"
	for _, tc := range []struct {
		name    string
		environ []string
		files   map[string]string
		verdict Verdict
		says    string
	}{
		{"no job", nil, files, Skip, "not a Slurm job"},
		{"few CPUs", step, files, Warn, "this task may use 2 of the node's 16 CPUs, and no number was requested"},
		{"as many as asked for", append(step, "SLURM_CPUS_PER_TASK=2"), files, Pass, "the step has all resources of its job"},
		{"what cannot be read", step, nil, Pass, "the step has all resources of its job"},
		{"a step that survives", step, safe, Pass, "the step has all resources of its job"},
		{"a step that ends with a node", step, srun, Warn, "Slurm will end this step with a lost node, without which the roles could go on: srun has -K1 and no --no-kill"},
		{"no GPUs", append(step, "SLURM_JOB_GPUS=0"), nil, Warn, "the job has the GPUs 0 here, but this step has none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := FindingBuilder{Template: Finding{ID: idStep, Source: stepSource}}
			(&Host{Root: tree(t, tc.files), Environ: tc.environ, SurvivesNodeLoss: true}).checkStep(&s)
			if len(s.Findings) != 1 || s.Findings[0].Verdict != tc.verdict || s.Findings[0].Observed != tc.says {
				t.Fatalf("found %+v", s.Findings)
			}
			complete(t, s.Findings[0])
		})
	}
}
