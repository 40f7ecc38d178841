package launcher

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestStartedAsByAncestry(t *testing.T) {
	step := "SLURM_JOB_ID=17 SLURM_STEP_ID=2 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_TASK_PID=40 "
	const (
		mpirun = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "
		torch  = "TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=old MASTER_PORT=1 "
	)
	seen := func(argvs ...string) (all []Ancestor) {
		for at, argv := range argvs {
			all = append(all, Ancestor{40 + at, strings.Fields(argv)})
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		environ  string
		ancestry []Ancestor
		by       string
		rank     int
		says     []string // of the error
	}{
		{"a task of a job that mpirun has submitted", step + mpirun, seen("bringupd rank", "slurmstepd: [17.2]"), "srun", 3, nil},
		{"the same, if processes of root are hidden", step + mpirun, seen("bringupd rank", ""), "srun", 3, nil},
		{"a shell that the task has started", strings.Replace(step, "=40", "=42", 1) + mpirun, seen("bringupd rank", "bash", "bash"), "srun", 3, nil},
		{"an mpirun of the task", strings.Replace(step, "=40", "=42", 1) + mpirun, seen("bringupd rank", "orted", "bash"), "Open MPI's mpirun", 0, nil},
		{"a daemon of mpirun that is the task", strings.Replace(step, "=40", "=41", 1) + mpirun, seen("bringupd rank", "/usr/bin/orted --x", "slurmstepd: [17.2]"), "Open MPI's mpirun", 0, nil},
		{"Debian's mpirun", strings.Replace(step, "=40", "=42", 1) + mpirun, seen("bringupd rank", "mpirun.openmpi -n 1", "bash"), "Open MPI's mpirun", 0, nil},
		{"no ancestor is seen", step + mpirun, seen("bringupd rank"), "", 0, nil},
		{"none is seen, and nobody looks", step + mpirun, nil, "", 0, nil},
		{"the batch shell of a job that mpirun has submitted", "SLURM_JOB_ID=17 SLURM_PROCID=0 " + mpirun, seen("bringupd rank", "bash slurm_script", "slurmstepd: [17.batch]"), "", 0,
			[]string{"no launcher has started"}},
		{"the batch shell of a job that a task has submitted", step, seen("bringupd rank", "bash slurm_script", "slurmstepd: [18.batch]"), "", 0, []string{"no launcher has started"}},
		{"a shell without a job", mpirun, seen("bringupd rank", "bash", "sshd: me@pts/0"), "Open MPI's mpirun", 0, nil},
		{"a job of PBS", mpirun + "RANK=3 WORLD_SIZE=4", seen("bringupd rank", "bash", "/opt/pbs/sbin/pbs_mom"), "a launcher that sets RANK and WORLD_SIZE", 3, nil},
		{"a task of a job that torchrun has submitted", step + torch, seen("bringupd rank", "slurmstepd: [17.2]"), "srun", 3, nil},
		{"a task within Python of such a job", strings.Replace(step, "=40", "=42", 1) + torch, seen("bringupd rank", "python app.py", "bash"), "", 0,
			[]string{"torchrun says rank 0 of 2", "srun says rank 3 of 4"}},
		{"torchrun as a module", strings.Replace(step, "=40", "=41", 1) + torch, seen("bringupd rank", "python3 -u -m torch.distributed.run train.py"), "torchrun", 0, nil},
		{"accelerate", strings.Replace(step, "=40", "=41", 1) + torch, seen("bringupd rank", "/v/bin/python /v/bin/accelerate launch train.py"), "torchrun", 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.by == "" && tc.says == nil {
				tc.says = []string{"Open MPI's mpirun says rank 0 of 1", "srun says rank 3 of 4", "unset OMPI_COMM_WORLD_RANK, or unset SLURM_STEP_ID"}
				if tc.ancestry != nil {
					tc.ancestry = []Ancestor{{7, []string{"bringupd", "rank"}}, {1, []string{"sh"}}}
				}
			}
			r, err := IdentifyRank(EnvironmentOf(strings.Fields(tc.environ)), tc.ancestry)
			if tc.by != "" {
				if err != nil || r.LauncherTitle != tc.by || r.Rank != tc.rank {
					t.Errorf("got %+v, %v; want node %d of %s", r, err, tc.rank, tc.by)
				}
				return
			}
			wantLaunchError(t, err, tc.says)
		})
	}
}

// TestIdentifyByAncestry verifies that a daemon belongs to the job that has started it, whatever
// has submitted that job.
func TestIdentifyByAncestry(t *testing.T) {
	step := change(recorded(t, "step-rank1"), "SLURM_TASK_PID=40")
	outer := map[string]map[string]string{
		"Open MPI": change(environmentOf(t, "openmpi-5.0.11/rank0"), "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"),
		"MPICH":    change(environmentOf(t, "mpich-5.0.2/rank0"), "PMI_RANK=0", "PMI_SIZE=1"),
		"Flux":     change(environmentOf(t, "flux-0.88/run-rank1"), "FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=1", "FLUX_JOB_NNODES=1"),
		"torchrun": {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
	}
	within := func(outer, inner map[string]string) Environment {
		all := maps.Clone(outer)
		maps.Copy(all, inner)
		return fromMap(all)
	}
	stepd := []Ancestor{{40, []string{"bringupd"}}, {39, []string{"slurmstepd: [1.0]"}}}
	mom := []Ancestor{{40, []string{"bringupd"}}, {39, []string{"/opt/pbs/sbin/pbs_mom"}}}
	for name, vars := range outer {
		id, err := IdentifyDaemon(within(vars, step), "n2", Overrides{Ancestors: stepd})
		if err != nil || id.Launcher != LauncherSlurm || id.NodeIndex != 1 || id.Size != 3 {
			t.Errorf("%s around srun: got %+v, %v", name, id, err)
		}
		// A task has submitted the job, too, so the number of its step is left.
		batch := []Ancestor{{40, []string{"bringupd"}}, {39, []string{"slurmstepd: [1.batch]", "", ""}}}
		_, err = IdentifyDaemon(within(vars, change(recorded(t, "batch-shell"), "SLURM_STEP_ID=0")), "n1", Overrides{JobID: "a", Ancestors: batch})
		if name != "torchrun" && (err == nil || !strings.Contains(err.Error(), "cannot start in the batch shell of job")) {
			t.Errorf("%s around a batch shell: got %v", name, err)
		}
		id, err = IdentifyDaemon(within(vars, environmentOf(t, "openpbs/task-rank1")), "n2",
			Overrides{ReadFile: files("n1\nn2\nn3\n"), Ancestors: mom})
		if err != nil || id.Launcher != LauncherPBS || id.NodeIndex != 1 || id.Size != 3 {
			t.Errorf("%s around pbsdsh: got %+v, %v", name, id, err)
		}
		_, err = IdentifyDaemon(within(vars, step), "n2", Overrides{JobID: "a"})
		if launch := (*LaunchError)(nil); name != "torchrun" && (!errors.As(err, &launch) || !strings.Contains(err.Error(), "says rank 0 of 1") || !strings.Contains(err.Error(), "srun says rank 1 of 3")) {
			t.Errorf("%s around srun, unseen: got %v", name, err)
		}
	}
	id, err := IdentifyDaemon(within(step, change(environmentOf(t, "openmpi-5.0.11/rank0"), "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_RANK=5")), "n2",
		Overrides{Ancestors: []Ancestor{{41, []string{"bringupd"}}, {40, []string{"prted", "--x"}}, {39, []string{"slurmstepd: [1.0]"}}}})
	if err != nil || id.Launcher != LauncherOpenMPI || id.NodeIndex != 5 || id.Size != 8 {
		t.Errorf("mpirun inside srun: got %+v, %v", id, err)
	}
	if id, err := IdentifyDaemon(within(outer["MPICH"], step), "n2", Overrides{NodeIndex: new(2), Size: new(4), JobID: "a"}); err != nil || id.NodeIndex != 2 {
		t.Errorf("flags: got %+v, %v", id, err)
	}
}
