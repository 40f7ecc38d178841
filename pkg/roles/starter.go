package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// starter is all that is particular to what starts one process a rank: a launcher, or
// an MPI's mpirun. Each has a file of its own, and its place in starters.
type starter struct {
	title string // for people
	// mark is the variable that only a process has which it has started.
	mark string
	// started tells whether it has, where mark alone does not; nil: where mark is set.
	started func(env Environment) bool
	names   rankNames
	origin  origin // by which the process's ancestors show it
	// complete adds what no variable tells alone; nil: nothing.
	complete  func(env Environment, r *StartedRank)
	servesPMI bool // whether its processes are told a server of PMI or PMIx
	// private are the beginnings of the variables that speak of the one process which
	// it has started: another one that believes them takes itself for that one.
	private []string
	// retell are those variables of its own that a task of a world is to see nevertheless,
	// with what they would say if it had started the task; nil: none.
	retell func(env Environment, t Task) map[string]string
}

// rankNames are the variables by which a starter tells a process who it is; the first
// one that is set counts.
type rankNames struct{ rank, ranks, local, locals, node, nodes []string }

// starters are all that StartedAs knows. If the ancestors of a process do not decide, the first whose
// variables it has counts: mpirun, flux and torchrun start theirs within a task of Slurm's.
var starters = []starter{openMPI, hydra, mvapich, fluxRun, ownRanks, torchrun, pals, slurmTasks, jsrun, plainTasks}

// otherPrivate begin the names of what is told one process by whom StartedAs doesn't
// know: the servers of PMI, Kubernetes, PBS, and rapidsmpf's rrun, whose places to meet
// serve the ranks that it has started.
var otherPrivate = append([]string{"JOB_COMPLETION_INDEX", "PBS_NODENUM", "PBS_TASKNUM", "PBS_VNODENUM", "RRUN_"}, pmiPrivate...)

// pmiPrivate begin the names of what the servers of PMI tell.
var pmiPrivate = []string{"PMI_", "PMI2_", "PMIX_"}

// usersPMIx begins the names of what users set of PMIx, for every process.
const usersPMIx = "PMIX_MCA_"

// StartedRank is a process that a launcher has started as one of many, as it was told.
type StartedRank struct {
	By            string // the launcher's title
	Rank, Ranks   int
	Local, Locals int // on its node; -1 and 0 where that is not told
	Node, Nodes   int // -1 and 0 where that is not told
	// CPUs are how many all of the node's have together; 0 where that is not told.
	CPUs int
	// OwnGPUs is whether the launcher shows the process the GPUs that are its own, and not
	// all that the node's have together.
	OwnGPUs bool
	// Master is the host of rank 0, and MasterPort a port for it that all ranks find by
	// themselves and that nobody holds; empty and 0 where only rank 0 itself knows.
	Master     string
	MasterPort int
}

// StartedAs finds out which of a launcher's processes this is, for a program that
// nothing but that launcher has started. Its error is a *LaunchError.
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
	r.CPUs, _ = env.number(1, "SLURM_CPUS_ON_NODE") // of a step of mpirun's, too; 0 where it isn't told
	if s.complete != nil {
		s.complete(env, &r)
	}
	return r, nil
}

// has tells whether the starter has started the process of that environment.
func (s starter) has(env Environment) bool {
	if s.started != nil {
		return s.started(env)
	}
	return env.get(s.mark) != ""
}

// read reads the numbers, and sees whether they can be.
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

// PMIVariables are the variables of an environment that speak of a server of PMI or PMIx, or of the mpirun that has
// started this process, each with the empty string: they are for that one process, and an mpirun that it starts is not
// to take them for its own (Open MPI's refuses "recursive calls").
func PMIVariables(environ []string) map[string]string {
	private := slices.Clone(pmiPrivate)
	for _, s := range []starter{openMPI, hydra} {
		if s.has(EnvironmentOf(environ)) {
			private = append(private, s.private...)
		}
	}
	return cleared(environ, private)
}

// Task is a process of a world as a launcher that starts one task a process would
// number it.
type Task struct {
	Rank, Ranks int
	Local       int
	PerNode     []int // how many each node has
	OnNode      []int // the ranks of the task's own node
}

// TaskVariables are the variables of an environment that speak of the one process which
// a launcher has started there, as they would speak of that task; the empty string where
// they must not be there at all.
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
