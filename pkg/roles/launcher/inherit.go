package launcher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// ChildKind is what a child of a daemon is to the launcher of the daemon.
type ChildKind int

const (
	// ChildCommand stands for the daemon's task on its node: the driver, a sandbox, a setup command, a
	// command of bringupd exec. It may start an mpirun or an srun on the nodes of the job.
	ChildCommand ChildKind = iota
	// ChildProcess is a process of a role. A node may have several, and not every node has one.
	ChildProcess
	// ChildService is a service of a framework. Its own workers inherit its environment.
	ChildService
	// ChildRank is a process of a world.
	ChildRank
)

// placeVariables describe the place of a process in a launch of ranks. A name with an asterisk is a
// prefix. torch, accelerate, DeepSpeed, JAX, Horovod and the MPIs wait for the other processes of
// the launch if they find them, so a process that is no rank must have none: they may be those of
// another launch around this one, or come from a hook of a container. Settings of the same programs,
// such as PET_NPROC_PER_NODE and TORCHELASTIC_ERROR_FILE, are not among them.
var placeVariables = []string{
	// torchrun, and others that set its variables
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE",
	"ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
	"TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE",
	// flags of torchrun, as Kubeflow gives them
	"PET_NNODES", "PET_NODE_RANK", "PET_RDZV_*", "PET_MASTER_*", "PET_LOCAL_ADDR",
	// DeepSpeed's launcher, Horovod and JAX
	"CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_*",
	"HOROVOD_CROSS_*", "HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_*",
	"JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT",
	// PMI, MPI launchers and rrun: their servers only serve their own ranks
	"PMI_*", "PMI2_*", "PMIX_*", "OMPI_COMM_WORLD_*", "MPI_LOCAL*", "MV2_COMM_*", "MVP_COMM_*",
	"JSM_NAMESPACE_*", "RRUN_*",
	// a world of bringupd
	"BRINGUPD_RANK", "BRINGUPD_RANKS", "BRINGUPD_LOCAL_RANK", "BRINGUPD_LOCAL_RANKS",
}

// rankMarks are those placeVariables with which MASTER_ADDR and MASTER_PORT are part of a launch.
// Without them, they are an address that the user has chosen, also if a job script has set WORLD_SIZE
// for the processes that the child starts.
var rankMarks = []string{"RANK", "LOCAL_RANK"}

// userPMIxPrefix is the prefix of PMIx settings of users, which are for every process.
const userPMIxPrefix = "PMIX_MCA_"

// taskPlaces describe the place of the daemon's own task, besides the variables of the starters.
var taskPlaces = []string{"SLURM_GTIDS", "SLURM_TASK_PID", "PBS_NODENUM", "PBS_TASKNUM", "PBS_VNODENUM",
	"LSF_PM_TASKID", "JOB_COMPLETION_INDEX"}

// InheritedVariables returns how the variables that a child inherits differ from the environment of
// the daemon: those that describe the place of another process in a launch are removed, and those
// of its job that the launcher has left out are added. An empty value is that of a variable which
// must be removed. What a rank inherits also depends on its number: see [TaskVariables].
func InheritedVariables(environ []string, kind ChildKind) map[string]string {
	env, set := EnvironmentOf(environ), make(map[string]string)
	for _, l := range allLaunchers {
		if l.completeJob != nil {
			maps.Copy(set, l.completeJob(env))
		}
	}
	if kind == ChildRank {
		return set
	}
	names := slices.Clone(placeVariables)
	if _, mark := env.firstSet(rankMarks...); mark != "" {
		names = append(names, "MASTER_ADDR", "MASTER_PORT")
	}
	// Other variables of an mpirun may be settings of the user, unless it has started this process.
	// Another mpirun must not use them: Open MPI's refuses "recursive calls".
	for _, s := range []rankStarter{openMPIStarter, hydraStarter} {
		if s.hasStarted(env) {
			names = append(names, asPrefixes(s.privatePrefixes)...)
		}
	}
	switch kind {
	case ChildProcess:
		names = append(names, taskPlaces...)
		for _, s := range []rankStarter{slurmStarter, fluxStarter, palsStarter} {
			v := s.variableNames
			names = slices.Concat(names, v.rank, v.rankCount, v.localRank, v.localCount, v.nodeIndex)
		}
	case ChildService:
		for _, l := range allLaunchers {
			names = append(names, asPrefixes(l.traits.PrivatePrefixes)...)
		}
	}
	maps.Copy(set, removedVariables(environ, names))
	return set
}

// scriptVariables are those variables of a launch that job scripts set themselves.
var scriptVariables = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR",
	"MASTER_PORT"}

// RemovedScriptVariables returns the variables that a job script may have set for the driver, and that
// it does not inherit.
func RemovedScriptVariables(environ []string) (names []string) {
	env, set := EnvironmentOf(environ), InheritedVariables(environ, ChildCommand)
	for _, name := range scriptVariables {
		if value, isChanged := set[name]; isChanged && value == "" && env.valueOf(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

func asPrefixes(names []string) []string {
	return textutil.MapSlice(names, func(name string) string { return name + "*" })
}

// removedVariables returns the variables of an environment with one of the names, each with an
// empty value.
func removedVariables(environ, names []string) map[string]string {
	set := make(map[string]string)
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		isNamed := slices.ContainsFunc(names, func(pattern string) bool {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
		})
		if isNamed && !strings.HasPrefix(name, userPMIxPrefix) {
			set[name] = ""
		}
	}
	return set
}

// rankNumbers are variables of torchrun that differ between the ranks of a world, and sizes of it.
var rankNumbers = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
	"ROLE_RANK", "ROLE_WORLD_SIZE"}

// CheckRankVariable returns an error if the ranks of a world cannot meet with this variable of a user
// for all of them. An empty value removes the variable.
func CheckRankVariable(name, value string) error {
	switch {
	case value != "" && slices.Contains(rankNumbers, name):
		return fmt.Errorf("bringupd sets %s for each rank: omit it, or start the command with: env %[1]s=…", name)
	case value == "" && name == "MASTER_ADDR":
		return errors.New("the ranks do not meet without an address: omit it, or give the first node's")
	}
	return nil
}

// Task is a process of a world, numbered as a launcher with one task per process would do.
type Task struct {
	Rank, RankCount int
	LocalRank       int
	TasksPerNode    []int // number of tasks on each node
	LocalRanks      []int // the ranks on the task's own node
}

// TaskVariables returns the variables of an environment that describe the process which a launcher
// has started, with the values for the task. The value is empty if the variable must be removed.
func TaskVariables(environ []string, t Task) map[string]string {
	names := slices.Concat(placeVariables, taskPlaces)
	for _, s := range allStarters {
		names = append(names, asPrefixes(s.privatePrefixes)...)
	}
	set, env := removedVariables(environ, names), EnvironmentOf(environ)
	for _, s := range allStarters {
		if s.taskVariables != nil && s.hasStarted(env) {
			maps.Copy(set, s.taskVariables(env, t))
		}
	}
	return set
}
