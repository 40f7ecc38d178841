package check

import "testing"

func TestLookStep(t *testing.T) {
	files := map[string]string{
		"proc/self/status":              "Name:\tbringupd\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n",
		"sys/devices/system/cpu/online": "0-15\n",
	}
	step := []string{"SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_NODEID=0"}
	for _, tc := range []struct {
		name    string
		environ []string
		files   map[string]string
		verdict Verdict
		says    string
	}{
		{"no job", nil, files, Skip, "not a Slurm job"},
		{"few CPUs", step, files, Warn, "this task may use 2 of the node's 16 CPUs, and no number was requested"},
		{"fewer CPUs than the job has", append(step, "SLURM_JOB_CPUS_PER_NODE=4(x2)"), files, Warn,
			"this task may use 2 of the 4 CPUs that the job has for it here"},
		{"sbatch --cpus-per-task, which srun does not take", append(step, "SLURM_CPUS_PER_TASK=16"), files, Warn,
			"this task may use 2 of the 16 CPUs that the job has for it here"},
		{"one thread of each core", append(step, "SLURM_JOB_CPUS_PER_NODE=4", "SLURM_CPUS_PER_TASK=4",
			"SLURM_HINT=nomultithread"), files, Pass,
			"this task may use 2 of the node's 16 CPUs"},
		{"fewer than one thread of each core", append(step, "SLURM_CPUS_PER_TASK=8", "SLURM_THREADS_PER_CORE=1"), files,
			Warn, "this task may use 2 of the 8 CPUs that the job has for it here"},
		{"one thread of each core, by another hint", append(step, "SLURM_CPUS_PER_TASK=4", "SLURM_HINT=compute_bound"),
			files, Pass, "this task may use 2 of the node's 16 CPUs"},
		{"one core of each socket", append(step, "SLURM_CPUS_PER_TASK=16", "SLURM_HINT=memory_bound"), files, Pass,
			"this task may use 2 of the node's 16 CPUs"},
		{"all CPUs", append(step, "SLURM_JOB_CPUS_PER_NODE=2,4", "SLURM_CPUS_PER_TASK=2"), files, Pass,
			"this task may use 2 of the node's 16 CPUs"},
		{"no GPUs", append(step, "SLURM_JOB_GPUS=0"), nil, Warn, "the job has the GPUs 0 here, but this step has none"},
		{"no GPUs in a component", append(step, "SLURM_JOB_GPUS=0", "SLURM_HET_SIZE=2"), nil, Pass,
			"the CPUs of this step cannot be counted"},
		{"fewer CPUs than another component", append(step, "SLURM_CPUS_PER_TASK=16", "SLURM_HET_SIZE=2"), files, Pass,
			"this task may use 2 of the node's 16 CPUs"},
		{"CPUs of the GPUs of the step", append(step, "SLURM_JOB_CPUS_PER_NODE=16", "SLURM_CPUS_PER_GPU=2"), files,
			Pass, "this task may use 2 of the node's 16 CPUs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := FindingBuilder{Template: Finding{ID: idStep, Source: stepSource}}
			(&Host{Root: tree(t, tc.files), Environ: tc.environ}).checkStep(&s)
			if len(s.Findings) != 1 || s.Findings[0].Verdict != tc.verdict || s.Findings[0].Observed != tc.says {
				t.Fatalf("found %+v", s.Findings)
			}
			complete(t, s.Findings[0])
		})
	}
	t.Run("no GPUs, with --gpu-check=off", func(t *testing.T) {
		s := FindingBuilder{Template: Finding{ID: idStep, Source: stepSource}}
		(&Host{Root: t.TempDir(), Environ: append(step, "SLURM_JOB_GPUS=0"), IgnoresGPUs: true}).checkStep(&s)
		if len(s.Findings) != 1 || s.Findings[0].Verdict != Pass {
			t.Fatalf("found %+v", s.Findings)
		}
	})
}
