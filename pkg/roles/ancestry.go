package roles

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Ancestor is a process of an Ancestry.
type Ancestor struct {
	PID  int
	Argv []string // empty if it cannot be read
}

// Ancestry returns this process and its ancestors, the nearest first, as far as they can be seen.
// A nil Ancestry sees nothing.
type Ancestry func() []Ancestor

// origin is how the processes that a starter has started are known by their ancestors. The zero
// origin is that of a starter whose programs are not known.
type origin struct {
	// programs are the names of the programs whose children these processes are.
	programs []string
	// within is a program that may be the starter as well, without a sign of it; empty if none.
	within string
	// task is the variable with the PID of the one process that was started; empty if none.
	task string
}

// python is what the names of Python's interpreters begin with.
const python = "python"

// Slurm names the task's process, so that a node that hides the processes of root does not matter.
var slurmOrigin = origin{programs: []string{"slurmstepd"}, task: "SLURM_TASK_PID"}

// distance returns how far away the nearest process is that may have started this one, -1 if none is
// seen. What a task's process itself has started is nearer than what has started the task.
func (o origin) distance(env Environment, ancestors []Ancestor) int {
	task := 0
	if o.task != "" {
		task, _ = strconv.Atoi(env.get(o.task)) // 0, which is no process, if it is not set
	}
	for at, a := range ancestors {
		switch {
		case at > 0 && slices.ContainsFunc(o.programs, a.runs):
			return 2 * at
		case a.PID == task:
			return 2*at + 1
		}
	}
	return -1
}

// see returns the ancestors, none if nothing is seen.
func (a Ancestry) see() []Ancestor {
	if a == nil {
		return nil
	}
	return a()
}

// withoutStep returns the environment of a process that Slurm runs in a job's script or its shell. There
// Slurm tells no step, and one that is told is that of the task which has submitted the job.
func (env Environment) withoutStep(ancestors []Ancestor) Environment {
	at := slices.IndexFunc(ancestors, func(a Ancestor) bool { return a.runs(slurmOrigin.programs[0]) })
	if at < 0 {
		return env
	}
	// As in "slurmstepd: [17.batch]", and "[17.0]" of a step.
	title := strings.TrimRight(strings.Join(ancestors[at].Argv, " "), "] ")
	step := title[strings.LastIndexByte(title, '.')+1:]
	if _, pseudo := pseudoSteps[step]; !pseudo {
		return env
	}
	return func(name string) (string, bool) {
		if name == "SLURM_STEP_ID" {
			return step, true
		}
		return env(name)
	}
}

// runs reports whether the process is of a program, which may have a version or a number in its name.
func (a Ancestor) runs(program string) bool {
	return slices.ContainsFunc(a.names(), func(name string) bool {
		rest, begins := strings.CutPrefix(name, program)
		return begins && (rest == "" || strings.ContainsAny(rest[:1], "-."+decimal))
	})
}

// names returns the name of the process's program, and for Python that of its script or module, too.
func (a Ancestor) names() []string {
	if len(a.Argv) == 0 {
		return nil
	}
	title, _, _ := strings.Cut(a.Argv[0], ":") // as in "slurmstepd: [17.0]"
	name := filepath.Base(title)
	if !strings.HasPrefix(name, python) {
		return []string{name}
	}
	for at, arg := range a.Argv[1:] {
		switch {
		case arg == "-m" && at+2 < len(a.Argv):
			return []string{name, a.Argv[at+2]}
		case !strings.HasPrefix(arg, "-"):
			return []string{name, filepath.Base(arg)}
		}
	}
	return []string{name}
}

// innermost returns those of the candidates that may have started this process, which are starters
// whose variables are in its environment. A job that is submitted, and a launch within another one,
// inherit the variables of the launch around them: only the nearest candidate among the ancestors
// counts, and none whose programs are known and are not there, unless no launcher is seen.
// It returns a *LaunchError if candidates disagree of which the ancestors show neither to be the nearest.
func innermost(candidates []starter, env Environment, ancestors []Ancestor) ([]starter, error) {
	// The daemon of a batch system is an ancestor of all that its job runs, also in the shell of the job.
	known := append(slices.Clone(candidates), slurmTasks, pbsTasks, gridEngineTasks)
	if !slices.ContainsFunc(known, func(s starter) bool { return s.origin.distance(env, ancestors) >= 0 }) {
		return candidates, disagreement(candidates, env)
	}
	nearest := 2 * len(ancestors)
	for _, c := range candidates {
		if far := c.origin.distance(env, ancestors); far >= 0 {
			nearest = min(nearest, far)
		}
	}
	candidates = slices.DeleteFunc(candidates, func(c starter) bool {
		far := c.origin.distance(env, ancestors)
		if far < 0 && c.origin.within != "" {
			far = origin{programs: []string{c.origin.within}}.distance(env, ancestors)
			return far < 0 || far > nearest
		}
		return len(c.origin.programs) > 0 && far != nearest
	})
	return candidates, disagreement(candidates, env)
}

// disagreement returns a *LaunchError if two of the candidates tell this process another rank, or
// another number of ranks. Variables that every job script may set do not count.
func disagreement(candidates []starter, env Environment) error {
	var first starter
	var told StartedRank
	for _, c := range candidates {
		if len(c.origin.programs) == 0 || !c.has(env) {
			continue
		}
		r, err := c.names.read(env)
		switch {
		case err != nil:
		case first.title == "":
			first, told = c, r
		case r.Rank != told.Rank || r.Ranks != told.Ranks:
			return &LaunchError{
				Problem: fmt.Sprintf("cannot tell which rank this is: %s says rank %d of %d (%s is set), and %s says rank %d of %d (%s is set); "+
					"its ancestors in /proc do not show which has started it, and the variables of the other are left from a launch around this one",
					first.title, told.Rank, told.Ranks, first.mark, c.title, r.Rank, r.Ranks, c.mark),
				Mend: fmt.Sprintf("unset the one that does not count, before this start (unset %s, or unset %s), or submit the job without it",
					first.mark, c.mark),
			}
		}
	}
	return nil
}

// OuterVariables are the variables of launches around the one that has started this rank, each with
// the empty string: its MPI and its libraries would take them for the rank's own. Those of Slurm
// describe the job as well, and stay.
func OuterVariables(environ []string, r StartedRank) map[string]string {
	env := EnvironmentOf(environ)
	var outer []string
	for _, s := range starters {
		if s.title == r.By || s.retell != nil || !s.has(env) {
			continue
		}
		outer = append(outer, s.private...)
		if s.servesPMI {
			outer = append(outer, outerPMI(env, r)...)
		}
	}
	return cleared(environ, outer)
}

// outerPMI begin the names of PMI's variables that speak of another process than this rank.
func outerPMI(env Environment, r StartedRank) (names []string) {
	differs := func(name string, own int) bool {
		value := env.get(name)
		return value != "" && value != strconv.Itoa(own)
	}
	if differs("PMI_RANK", r.Rank) || differs("PMI_SIZE", r.Ranks) {
		names = append(names, "PMI_", "PMI2_")
	}
	space := env.get("PMIX_NAMESPACE")
	ofStep := fmt.Sprintf("slurm.pmix.%s.%s", env.get("SLURM_JOB_ID"), env.get("SLURM_STEP_ID"))
	if differs("PMIX_RANK", r.Rank) || space != "" && r.By == slurmTasks.title && space != ofStep {
		names = append(names, "PMIX_")
	}
	return names
}

// cleared are the variables of an environment whose names begin so, each with the empty string. What
// users set of PMIx, for every process, is not among them.
func cleared(environ []string, prefixes []string) map[string]string {
	set := make(map[string]string)
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.ContainsFunc(prefixes, begins) && !begins(usersPMIx) {
			set[name] = ""
		}
	}
	return set
}
