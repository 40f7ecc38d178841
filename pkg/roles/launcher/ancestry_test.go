package launcher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// level is one launch of several nested ones: the variables that it adds to the environment of its
// processes, and the processes between those and its caller, the nearest first.
type level struct {
	title     string
	add       func(t *testing.T, vars map[string]string, rank, ranks, task int)
	processes []string
}

// told sets the variables in which a starter passes a rank.
func (s rankStarter) told(vars map[string]string, rank, ranks int) {
	vars[s.variableNames.rank[0]], vars[s.variableNames.rankCount[0]] = strconv.Itoa(rank), strconv.Itoa(ranks)
	vars[s.variableNames.localRank[0]] = "0"
}

// recordedLevel adds the variables that a real launcher has set for a process, with another rank.
func recordedLevel(s rankStarter, file string, processes ...string) level {
	var real map[string]string
	return level{s.displayName, func(t *testing.T, vars map[string]string, rank, ranks, task int) {
		if real == nil {
			real = environmentOf(t, file)
		}
		maps.Copy(vars, real)
		s.told(vars, rank, ranks)
		for name, value := range map[string]int{"PMI_RANK": rank, "PMI_SIZE": ranks, "PMIX_RANK": rank} {
			if real[name] != "" {
				vars[name] = strconv.Itoa(value)
			}
		}
		if s.origin.taskPIDVariable != "" {
			vars[s.origin.taskPIDVariable] = strconv.Itoa(task)
		}
	}, processes}
}

// levels are the launchers that may be nested, with the process names that real ones have.
var levels = []level{
	recordedLevel(openMPIStarter, "openmpi-5.0.11/rank1", "/opt/openmpi/bin/prterun -n 4 ./app"),
	recordedLevel(hydraStarter, "mpich-5.0.2/rank1", "/opt/mpich/bin/hydra_pmi_proxy --control-port n1:33385", "/opt/mpich/bin/mpirun -n 4 ./app"),
	recordedLevel(hydraStarter, "intelmpi-2021.18.1/rank1", "/usr/bin/hydra_pmi_proxy --control-port n1:41871", "mpiexec.hydra -n 4 ./app", "/bin/sh /opt/intel/bin/mpirun -n 4 ./app"),
	recordedLevel(fluxStarter, "flux-0.88/nested-rank1", "/usr/libexec/flux/flux-shell 1234"),
	recordedLevel(slurmStarter, "slurm-22.05/step-rank1", "slurmstepd: [1.0]"),
	{torchrunStarter.displayName, func(_ *testing.T, vars map[string]string, rank, ranks, _ int) {
		torchrunStarter.told(vars, rank, ranks)
		vars["TORCHELASTIC_RUN_ID"], vars["LOCAL_WORLD_SIZE"], vars["MASTER_ADDR"] = "none", "2", "torchhost"
	}, []string{"/usr/bin/python3.11 /usr/bin/torchrun --nproc-per-node=2 train.py"}},
	{worldStarter.displayName, func(_ *testing.T, vars map[string]string, rank, ranks, _ int) {
		var environ []string
		for name, value := range vars {
			environ = append(environ, name+"="+value)
		}
		for name, value := range TaskVariables(environ, Task{Rank: rank, RankCount: ranks, TasksPerNode: []int{ranks}, LocalRanks: []int{rank}}) {
			if vars[name] = value; value == "" {
				delete(vars, name)
			}
		}
		worldStarter.told(vars, rank, ranks)
		torchrunStarter.told(vars, rank, ranks)
		maps.Copy(vars, LocalAliases("0", strconv.Itoa(ranks)))
		vars["TORCHELASTIC_RUN_ID"], vars["BRINGUPD_LOCAL_RANKS"] = "1.0", strconv.Itoa(ranks)
		vars["MASTER_ADDR"], vars["MPI_LOCALRANKID"], vars["RRUN_RANK"] = "worldhost", "0", strconv.Itoa(rank)
		vars["PMI_RANK"], vars["PMI_SIZE"], vars["PMIX_RANK"], vars["PMIX_NAMESPACE"] = strconv.Itoa(rank), strconv.Itoa(ranks), strconv.Itoa(rank), "ours"
	}, []string{"bringupd --ranks-per-node=4 -- ./app"}},
}

// nest returns the environment and the ancestry of a process below nested launches. The first
// submitted launches are in another job, whose processes are not visible.
func nest(t *testing.T, launches []level, submitted int) (vars map[string]string, seen []Ancestor) {
	t.Helper()
	vars = map[string]string{"PATH": "/bin", "OMPI_MCA_btl": "tcp", "PMIX_MCA_gds": "hash"}
	pid, up := 1, []Ancestor{{1, []string{"/sbin/init"}}}
	add := func(argv string) {
		pid++
		up = append(up, Ancestor{pid, strings.Fields(argv)})
	}
	for at, l := range launches {
		if at == submitted {
			up = up[:1]
		}
		for _, argv := range slices.Backward(l.processes) {
			add(argv)
		}
		add("/bin/bash ./job.sh") // the task, which calls the inner launch
		l.add(t, vars, at, 10+at, pid)
	}
	slices.Reverse(up)
	return vars, up
}

// TestNestedLaunches nests four launches of every kind, also in jobs that one of them has
// submitted: a rank belongs to the innermost launch.
func TestNestedLaunches(t *testing.T) {
	const deep = 4
	var launches []level
	var nested func()
	count := 0
	nested = func() {
		if len(launches) < deep {
			for _, l := range levels {
				launches = append(launches, l)
				nested()
				launches = launches[:len(launches)-1]
			}
			return
		}
		for submitted := range deep {
			count++
			vars, seen := nest(t, launches, submitted)
			inner := launches[deep-1]
			r, err := IdentifyRank(fromMap(vars), func() []Ancestor { return seen })
			var names []string
			for _, l := range launches {
				names = append(names, l.title)
			}
			what := fmt.Sprintf("%s, of which %d outside of the job", strings.Join(names, " > "), submitted)
			if err != nil || r.LauncherTitle != inner.title || r.Rank != deep-1 || r.RankCount != 9+deep {
				t.Fatalf("%s: got %+v, %v", what, r, err)
			}
		}
	}
	nested()
	t.Logf("%d ways", count)
}

func TestStartedAsByAncestry(t *testing.T) {
	step := "SLURM_JOB_ID=17 SLURM_STEP_ID=2 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_TASK_PID=40 "
	const (
		mpirun = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "
		torch  = "TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=old MASTER_PORT=1 "
	)
	seen := func(argvs ...string) Ancestry {
		var all []Ancestor
		for at, argv := range argvs {
			all = append(all, Ancestor{40 + at, strings.Fields(argv)})
		}
		return func() []Ancestor { return all }
	}
	for _, tc := range []struct {
		name     string
		environ  string
		ancestry Ancestry
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
					tc.ancestry = func() []Ancestor { return []Ancestor{{7, []string{"bringupd", "rank"}}, {1, []string{"sh"}}} }
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
		id, err := IdentifyDaemon(within(vars, step), "n2", Overrides{Ancestry: func() []Ancestor { return stepd }})
		if err != nil || id.Launcher != LauncherSlurm || id.NodeIndex != 1 || id.Size != 3 {
			t.Errorf("%s around srun: got %+v, %v", name, id, err)
		}
		// A task has submitted the job, too, so the number of its step is left.
		batch := []Ancestor{{40, []string{"bringupd"}}, {39, []string{"slurmstepd: [1.batch]", "", ""}}}
		_, err = IdentifyDaemon(within(vars, change(recorded(t, "batch-shell"), "SLURM_STEP_ID=0")), "n1", Overrides{JobID: "a", Ancestry: func() []Ancestor { return batch }})
		if name != "torchrun" && (err == nil || !strings.Contains(err.Error(), "cannot start in the batch shell of job")) {
			t.Errorf("%s around a batch shell: got %v", name, err)
		}
		id, err = IdentifyDaemon(within(vars, environmentOf(t, "openpbs/task-rank1")), "n2",
			Overrides{ReadFile: files("n1\nn2\nn3\n"), Ancestry: func() []Ancestor { return mom }})
		if err != nil || id.Launcher != LauncherPBS || id.NodeIndex != 1 || id.Size != 3 {
			t.Errorf("%s around pbsdsh: got %+v, %v", name, id, err)
		}
		_, err = IdentifyDaemon(within(vars, step), "n2", Overrides{JobID: "a"})
		if launch := (*LaunchError)(nil); name != "torchrun" && (!errors.As(err, &launch) || !strings.Contains(err.Error(), "says rank 0 of 1") || !strings.Contains(err.Error(), "srun says rank 1 of 3")) {
			t.Errorf("%s around srun, unseen: got %v", name, err)
		}
	}
	id, err := IdentifyDaemon(within(step, change(environmentOf(t, "openmpi-5.0.11/rank0"), "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_RANK=5")), "n2",
		Overrides{Ancestry: func() []Ancestor {
			return []Ancestor{{41, []string{"bringupd"}}, {40, []string{"prted", "--x"}}, {39, []string{"slurmstepd: [1.0]"}}}
		}})
	if err != nil || id.Launcher != LauncherOpenMPI || id.NodeIndex != 5 || id.Size != 8 {
		t.Errorf("mpirun inside srun: got %+v, %v", id, err)
	}
	if id, err := IdentifyDaemon(within(outer["MPICH"], step), "n2", Overrides{NodeIndex: new(2), Size: new(4), JobID: "a"}); err != nil || id.NodeIndex != 2 {
		t.Errorf("flags: got %+v, %v", id, err)
	}
}
