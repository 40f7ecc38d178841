package launcher

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// rankStarter has all properties of a program that starts one process per rank: a launcher, or an
// MPI's mpirun. Each has a place in allStarters.
type rankStarter struct {
	displayName string // display name
	// markVariable is a variable that only its processes have.
	markVariable string
	// customCheck reports whether it has started a process, if markVariable alone is not sufficient. If
	// it is nil, markVariable decides.
	customCheck   func(env Environment) bool
	variableNames rankVariables
	origin        starterOrigin // by which the process's ancestors show it
	// completeRank adds values that no single variable has. It may be nil.
	completeRank func(env Environment, r *StartedRank)
	// countRanks counts the processes if the variable with their number is not set; want.Size is the
	// number of nodes. It is nil if that variable is always set.
	countRanks func(env Environment, want Overrides) (int, error)
	// privatePrefixes are the prefixes of variables that describe the started process itself. Another
	// process that inherits them would mistake itself for that one.
	privatePrefixes []string
	// taskVariables returns those of its variables that a task of a world needs nevertheless, with the
	// values that it would set for the task. It may be nil.
	taskVariables func(env Environment, t Task) map[string]string
}

// rankVariables are the variables with a process's rank, number of ranks, local rank, number of
// local ranks, node index and number of nodes. The first one of each kind that is set counts.
type rankVariables struct {
	rank, rankCount, localRank, localCount, nodeIndex, nodeCount []string
}

// allStarters are all starters that IdentifyRank knows. If the ancestors of a process do not
// decide, the first whose variables are set counts: mpirun, flux and torchrun start their processes
// within a Slurm task.
var allStarters = []rankStarter{
	openMPIStarter, hydraStarter, fluxStarter, worldStarter, torchrunStarter, palsStarter,
	slurmStarter, plainStarter,
}

// SpansMachines reports whether some of the ranks run on other machines, as far as the launcher says.
func (r StartedRank) SpansMachines() bool {
	return r.NodeCount > 1 || r.LocalCount > 0 && r.RankCount > r.LocalCount
}

// IsWithRank0 reports whether rank 0 is known to run on the rank's own node: launchers number the
// nodes in the order of the ranks, and so the ranks of a node.
func (r StartedRank) IsWithRank0() bool {
	return r.Rank == 0 || r.Rank == r.LocalRank || r.NodeIndex == 0
}

// StartedRank is a process that a launcher has started as one of many, according to its variables.
type StartedRank struct {
	LauncherTitle         string // display name of the launcher
	Rank, RankCount       int
	LocalRank, LocalCount int // on its node; -1 and 0 if unknown
	NodeIndex, NodeCount  int // -1 and 0 if unknown
	// CPUs is the number of CPUs that all ranks of the node share, or 0 if it is unknown.
	CPUs int
	// OwnGPUs reports that the launcher shows the process only its own GPUs, and not all GPUs of the
	// node's ranks.
	OwnGPUs bool
	// MasterHost is the host of rank 0, and MasterPort a port for it that all ranks derive in the same
	// way; it is not reserved. They are empty and 0 if only rank 0 itself can know them.
	MasterHost string
	MasterPort int
}

// IdentifyRank determines which of a launcher's processes this is, for a program that was started
// by a launcher directly. Its error is a *LaunchError.
func IdentifyRank(env Environment, want Overrides) (StartedRank, error) {
	env = env.withoutStep(want.Ancestors)
	isOther := func(s rankStarter) bool { return !s.hasStarted(env) }
	candidates := slices.DeleteFunc(slices.Clone(allStarters), isOther)
	candidates, err := innermostStarters(candidates, env, want.Ancestors)
	if err != nil {
		return StartedRank{}, err
	}
	if len(candidates) == 0 {
		return StartedRank{}, notStartedError()
	}
	s := candidates[0]
	if env, err = s.withCount(env, want); err != nil {
		return StartedRank{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell how many ranks %s has started: %v", s.displayName, err),
			Fix:     "start as many on each of N nodes, and give their number: bringupd rank --nnodes=N -- ./app",
		}
	}
	r, err := s.variableNames.readRank(env)
	if err != nil {
		return StartedRank{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell which rank this is: %s has started it, and %v",
				s.displayName, err),
			Fix: "let all variables of the launcher through (in a container, and in srun --export)",
		}
	}
	r.LauncherTitle = s.displayName
	// also for a step of mpirun; 0 if it is not set
	r.CPUs, _ = env.parseNumber(1, "SLURM_CPUS_ON_NODE")
	if s.completeRank != nil {
		s.completeRank(env, &r)
	}
	return r, nil
}

func (s rankStarter) hasStarted(env Environment) bool {
	if s.customCheck != nil {
		return s.customCheck(env)
	}
	return env.valueOf(s.markVariable) != ""
}

// withCount returns the environment with the number of processes, which is counted if it is not set.
func (s rankStarter) withCount(env Environment, want Overrides) (Environment, error) {
	counted, value := env.firstSet(s.variableNames.rankCount...)
	if value != "" || s.countRanks == nil {
		return env, nil
	}
	count, err := s.countRanks(env, want)
	if err != nil {
		return env, fmt.Errorf("%s is not set, and %v", counted, err)
	}
	return func(name string) (string, bool) {
		if name == counted {
			return strconv.Itoa(count), true
		}
		return env(name)
	}, nil
}

// readRank reads and validates the numbers.
func (names rankVariables) readRank(env Environment) (r StartedRank, err error) {
	r = StartedRank{LocalRank: -1, NodeIndex: -1}
	for _, number := range []struct {
		to     *int
		least  int
		needed bool
		names  []string
	}{
		{&r.Rank, 0, true, names.rank}, {&r.RankCount, 1, true, names.rankCount},
		{&r.LocalRank, 0, false, names.localRank}, {&r.LocalCount, 1, false, names.localCount},
		{&r.NodeIndex, 0, false, names.nodeIndex}, {&r.NodeCount, 1, false, names.nodeCount},
	} {
		if len(number.names) == 0 {
			continue
		}
		if _, value := env.firstSet(number.names...); value == "" && !number.needed {
			continue
		}
		if *number.to, err = env.parseNumber(number.least, number.names...); err != nil {
			return r, err
		}
	}
	switch {
	case r.Rank >= r.RankCount:
		return r, fmt.Errorf("the rank is %d of %d: it should be 0 to %d", r.Rank, r.RankCount, r.RankCount-1)
	case r.LocalCount > 0 && r.LocalRank >= r.LocalCount:
		return r, fmt.Errorf("the local rank is %d of %d: it should be 0 to %d",
			r.LocalRank, r.LocalCount, r.LocalCount-1)
	}
	return r, nil
}

func notStartedError() error {
	marks := textutil.MapSlice(allStarters, func(s rankStarter) string { return s.markVariable })
	return &LaunchError{
		Problem: "cannot tell which rank this is: no launcher has started this process as one of several " +
			"(none of " + strings.Join(marks, ", ") + " is set)",
		Fix: "start it with: srun --ntasks-per-node=4 bringupd rank -- ./app, or so with mpirun, " +
			"mpiexec or flux run; or let bringupd start the ranks: " +
			"srun --ntasks-per-node=1 bringupd --ranks-per-node=4 -- ./app",
		InShell: true,
	}
}
