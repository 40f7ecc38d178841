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

// Ancestry returns this process and its ancestors, the nearest first, as far as they are visible. A
// nil Ancestry sees none.
type Ancestry func() []Ancestor

// origin describes how the ancestors of a process show which starter has started it. The zero
// origin is that of a starter with unknown programs.
type origin struct {
	// programs are the names of the programs whose children are the started processes.
	programs []string
	// within is a program that may be the starter, too, without visible evidence. It is empty if there
	// is none.
	within string
	// task is the variable with the PID of the started process. It is empty if there is none.
	task string
}

// python is the prefix of the names of Python interpreters.
const python = "python"

// Slurm provides the PID of the task's process, so this works even if a node hides the processes of
// root.
var slurmOrigin = origin{programs: []string{"slurmstepd"}, task: "SLURM_TASK_PID"}

// distance returns the distance to the nearest ancestor that may have started this process, or -1
// if none is visible. An ancestor that the task's process has started is nearer than the starter of
// the task.
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

// see returns the ancestors, or none if nothing is visible.
func (a Ancestry) see() []Ancestor {
	if a == nil {
		return nil
	}
	return a()
}

// withoutStep returns the environment of a process that Slurm runs in a batch script or its shell.
// Slurm sets no step variables there; if they are set, they belong to the task that has submitted
// the job.
func (env Environment) withoutStep(ancestors []Ancestor) Environment {
	at := slices.IndexFunc(ancestors, func(a Ancestor) bool { return a.runs(slurmOrigin.programs[0]) })
	if at < 0 {
		return env
	}
	// For example "slurmstepd: [17.batch]", or "[17.0]" for a step.
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

// runs reports whether the process is an instance of a program. The process name may include a
// version or a number.
func (a Ancestor) runs(program string) bool {
	return slices.ContainsFunc(a.names(), func(name string) bool {
		rest, begins := strings.CutPrefix(name, program)
		return begins && (rest == "" || strings.ContainsAny(rest[:1], "-."+decimal))
	})
}

// names returns the name of the process's program, and for Python also that of its script or
// module.
func (a Ancestor) names() []string {
	if len(a.Argv) == 0 {
		return nil
	}
	title, _, _ := strings.Cut(a.Argv[0], ":") // for example "slurmstepd: [17.0]"
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

// innermost returns the candidates that may have started this process. Candidates are starters
// whose variables are in its environment. A submitted job, and a launch within another one, inherit
// the variables of the surrounding launch. So only the candidate that is nearest among the
// ancestors counts, and none whose programs are known but missing, unless no launcher is visible.
// It returns a *LaunchError if candidates disagree and the ancestors do not show which of them is
// the nearest.
func innermost(candidates []starter, env Environment, ancestors []Ancestor) ([]starter, error) {
	// The daemon of a batch system is an ancestor of all processes of its jobs, including the job's
	// shell.
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

// disagreement returns a *LaunchError if two of the candidates give this process different ranks or
// numbers of ranks. Variables that any job script may set do not count.
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

// OuterVariables returns the variables of the launches around the one that has started this rank,
// each with an empty value, because an MPI or another library would mistake them for the rank's
// own. Slurm's variables also describe the job, and stay.
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

// outerPMI returns prefixes of the PMI variables that describe another process than this rank.
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

// cleared returns the variables of an environment with one of the prefixes, each with an empty
// value. It leaves out PMIx settings of users, which are for every process.
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
