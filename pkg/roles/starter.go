package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// starter has all properties of a program that starts one process per rank: a launcher, or an MPI's
// mpirun. Each has a file of its own, and a place in starters.
type starter struct {
	title string // display name
	// mark is a variable that only its processes have.
	mark string
	// started reports whether it has started a process, if mark alone is not sufficient. If it is nil,
	// mark decides.
	started func(env Environment) bool
	names   rankNames
	origin  origin // by which the process's ancestors show it
	// complete adds values that no single variable has. It may be nil.
	complete  func(env Environment, r *StartedRank)
	servesPMI bool // whether its processes have a PMI or PMIx server
	// private are the prefixes of variables that describe the started process itself. Another process
	// that inherits them would mistake itself for that one.
	private []string
	// retell returns those of its variables that a task of a world needs nevertheless, with the values
	// that it would set for the task. It may be nil.
	retell func(env Environment, t Task) map[string]string
}

// rankNames are the variables with a process's rank, number of ranks, local rank, number of local
// ranks, node index and number of nodes. The first one of each kind that is set counts.
type rankNames struct{ rank, ranks, local, locals, node, nodes []string }

// starters are all starters that StartedAs knows. If the ancestors of a process do not decide, the
// first whose variables are set counts: mpirun, flux and torchrun start their processes within a
// Slurm task.
var starters = []starter{openMPI, hydra, mvapich, fluxRun, ownRanks, torchrun, pals, slurmTasks, jsrun, plainTasks}

// otherPrivate are the prefixes of variables for one process that are set by programs which
// StartedAs does not know: PMI servers, Kubernetes, PBS, and rapidsmpf's rrun, whose rendezvous
// servers only serve its own ranks.
var otherPrivate = append([]string{"JOB_COMPLETION_INDEX", "PBS_NODENUM", "PBS_TASKNUM", "PBS_VNODENUM", "RRUN_"}, pmiPrivate...)

// pmiPrivate are the prefixes of variables that PMI servers set.
var pmiPrivate = []string{"PMI_", "PMI2_", "PMIX_"}

// usersPMIx is the prefix of PMIx settings of users, which are for every process.
const usersPMIx = "PMIX_MCA_"

// StartedRank is a process that a launcher has started as one of many, according to its variables.
type StartedRank struct {
	By            string // display name of the launcher
	Rank, Ranks   int
	Local, Locals int // on its node; -1 and 0 if unknown
	Node, Nodes   int // -1 and 0 if unknown
	// CPUs is the number of CPUs that all ranks of the node share, or 0 if it is unknown.
	CPUs int
	// OwnGPUs reports that the launcher shows the process only its own GPUs, and not all GPUs of the
	// node's ranks.
	OwnGPUs bool
	// Master is the host of rank 0, and MasterPort a port for it that all ranks derive in the same
	// way; it is not reserved. They are empty and 0 if only rank 0 itself can know them.
	Master     string
	MasterPort int
}

// StartedAs determines which of a launcher's processes this is, for a program that was started by a
// launcher directly. Its error is a *LaunchError.
func StartedAs(env Environment, ancestry Ancestry) (StartedRank, error) {
	ancestors := ancestry.see()
	env = env.withoutStep(ancestors)
	candidates := slices.DeleteFunc(slices.Clone(starters), func(s starter) bool { return !s.has(env) })
	candidates, err := innermost(candidates, env, ancestors)
	if err != nil {
		return StartedRank{}, err
	}
	if len(candidates) == 0 {
		return StartedRank{}, notStartedError()
	}
	s := candidates[0]
	r, err := s.names.read(env)
	if err != nil {
		return StartedRank{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell which rank this is: %s has started it, and %v", s.title, err),
			Mend:    "let all variables of the launcher through (in a container, and in srun --export)",
		}
	}
	r.By = s.title
	r.CPUs, _ = env.number(1, "SLURM_CPUS_ON_NODE") // also for a step of mpirun; 0 if it is not set
	if s.complete != nil {
		s.complete(env, &r)
	}
	return r, nil
}

// has reports whether the starter has started the process with this environment.
func (s starter) has(env Environment) bool {
	if s.started != nil {
		return s.started(env)
	}
	return env.get(s.mark) != ""
}

// read reads and validates the numbers.
func (names rankNames) read(env Environment) (r StartedRank, err error) {
	r = StartedRank{Local: -1, Node: -1}
	for _, number := range []struct {
		to     *int
		least  int
		needed bool
		names  []string
	}{
		{&r.Rank, 0, true, names.rank}, {&r.Ranks, 1, true, names.ranks},
		{&r.Local, 0, false, names.local}, {&r.Locals, 1, false, names.locals},
		{&r.Node, 0, false, names.node}, {&r.Nodes, 1, false, names.nodes},
	} {
		if len(number.names) == 0 {
			continue
		}
		if _, value := env.first(number.names...); value == "" && !number.needed {
			continue
		}
		if *number.to, err = env.number(number.least, number.names...); err != nil {
			return r, err
		}
	}
	switch {
	case r.Rank >= r.Ranks:
		return r, fmt.Errorf("the rank is %d of %d: it should be 0 to %d", r.Rank, r.Ranks, r.Ranks-1)
	case r.Locals > 0 && r.Local >= r.Locals:
		return r, fmt.Errorf("the local rank is %d of %d: it should be 0 to %d", r.Local, r.Locals, r.Locals-1)
	}
	return r, nil
}

func notStartedError() error {
	var marks []string
	for _, s := range starters {
		marks = append(marks, s.mark)
	}
	return &LaunchError{
		Problem: "cannot tell which rank this is: no launcher has started this process as one of several (none of " + strings.Join(marks, ", ") + " is set)",
		Mend: "start it with: srun --ntasks-per-node=4 bringupd rank -- ./app, or so with mpirun, mpiexec or flux run; " +
			"or let bringupd start the ranks: srun --ntasks-per-node=1 bringupd --ranks-per-node=4 -- ./app",
		Alone: true,
	}
}

// PMIVariables returns the variables of an environment that refer to a PMI or PMIx server, or to
// the mpirun that has started this process, each with an empty value. They are only for this
// process: an mpirun that it starts must not use them (Open MPI's refuses "recursive calls").
func PMIVariables(environ []string) map[string]string {
	private := slices.Clone(pmiPrivate)
	for _, s := range []starter{openMPI, hydra} {
		if s.has(EnvironmentOf(environ)) {
			private = append(private, s.private...)
		}
	}
	return cleared(environ, private)
}

// Task is a process of a world, numbered as a launcher with one task per process would do.
type Task struct {
	Rank, Ranks int
	Local       int
	PerNode     []int // number of tasks on each node
	OnNode      []int // the ranks on the task's own node
}

// TaskVariables returns the variables of an environment that describe the process which a launcher
// has started, with the values for the task. The value is empty if the variable must be removed.
func TaskVariables(environ []string, t Task) map[string]string {
	private := slices.Clone(otherPrivate)
	for _, s := range starters {
		private = append(private, s.private...)
	}
	set, env := cleared(environ, private), EnvironmentOf(environ)
	for _, s := range starters {
		if s.retell != nil && s.has(env) {
			maps.Copy(set, s.retell(env, t))
		}
	}
	return set
}
