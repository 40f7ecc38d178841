package launcher

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Ancestor is this process or an ancestor of it. A list of them begins with this process, and has
// those that are visible.
type Ancestor struct {
	PID  int
	Argv []string // empty if it cannot be read
}

// starterOrigin describes how the ancestors of a process show which starter has started it. The
// zero origin is that of a starter with unknown programs.
type starterOrigin struct {
	// programs are the names of the programs whose children are the started processes.
	programs []string
	// outerProgram is a program that may be the starter, too, without visible evidence. It is empty if
	// there is none.
	outerProgram string
	// taskPIDVariable is the variable with the PID of the started process. It is empty if there is
	// none.
	taskPIDVariable string
}

const pythonPrefix = "python"

// Slurm provides the PID of the task's process, so this works even if a node hides the processes of
// root.
var slurmOrigin = starterOrigin{programs: []string{"slurmstepd"}, taskPIDVariable: "SLURM_TASK_PID"}

// ancestorDistance returns the distance to the nearest ancestor that may have started this process,
// or -1 if none is visible. An ancestor that the task's process has started is nearer than the
// starter of the task.
func (o starterOrigin) ancestorDistance(env Environment, ancestors []Ancestor) int {
	task := 0
	if o.taskPIDVariable != "" {
		task, _ = strconv.Atoi(env.valueOf(o.taskPIDVariable)) // 0, which is no process, if it is not set
	}
	for at, a := range ancestors {
		switch {
		case at > 0 && slices.ContainsFunc(o.programs, a.isInstanceOf):
			return 2 * at
		case a.PID == task:
			return 2*at + 1
		}
	}
	return -1
}

// withoutStep returns the environment of a process that Slurm runs in a batch script or its shell.
// Slurm sets no step variables there; if they are set, they belong to the task that has submitted
// the job.
func (env Environment) withoutStep(ancestors []Ancestor) Environment {
	isStepDaemon := func(a Ancestor) bool { return a.isInstanceOf(slurmOrigin.programs[0]) }
	at := slices.IndexFunc(ancestors, isStepDaemon)
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

// isInstanceOf reports whether the process is an instance of a program. The process name may
// include a version or a number.
func (a Ancestor) isInstanceOf(program string) bool {
	return slices.ContainsFunc(a.programNames(), func(name string) bool {
		rest, begins := strings.CutPrefix(name, program)
		return begins && (rest == "" || strings.ContainsAny(rest[:1], "-."+decimalDigits))
	})
}

// programNames returns the name of the process's program, and for Python also that of its script or
// module.
func (a Ancestor) programNames() []string {
	if len(a.Argv) == 0 {
		return nil
	}
	title, _, _ := strings.Cut(a.Argv[0], ":") // for example "slurmstepd: [17.0]"
	name := filepath.Base(title)
	if !strings.HasPrefix(name, pythonPrefix) {
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

// innermostStarters returns the candidates that may have started this process. Candidates are
// starters whose variables are in its environment. A submitted job, and a launch within another
// one, inherit the variables of the surrounding launch. So only the candidate that is nearest among
// the ancestors counts, and none whose programs are known but missing, unless no launcher is
// visible. It returns a *LaunchError if candidates disagree and the ancestors do not show which of
// them is the nearest.
func innermostStarters(
	candidates []rankStarter, env Environment, ancestors []Ancestor,
) ([]rankStarter, error) {
	isVisible := func(s rankStarter) bool { return s.origin.ancestorDistance(env, ancestors) >= 0 }
	// The daemon of a batch system is an ancestor of all processes of its jobs, including the job's
	// shell.
	batchSystems := []rankStarter{slurmStarter, pbsStarter}
	if !slices.ContainsFunc(slices.Concat(candidates, batchSystems), isVisible) {
		return candidates, disagreementError(candidates, env)
	}
	nearest := 2 * len(ancestors)
	for _, c := range candidates {
		if far := c.origin.ancestorDistance(env, ancestors); far >= 0 {
			nearest = min(nearest, far)
		}
	}
	candidates = slices.DeleteFunc(candidates, func(c rankStarter) bool {
		far := c.origin.ancestorDistance(env, ancestors)
		if far < 0 && c.origin.outerProgram != "" {
			outer := starterOrigin{programs: []string{c.origin.outerProgram}}
			far = outer.ancestorDistance(env, ancestors)
			return far < 0 || far > nearest
		}
		return len(c.origin.programs) > 0 && far != nearest
	})
	return candidates, disagreementError(candidates, env)
}

// disagreementError returns a *LaunchError if two of the candidates give this process different
// ranks or numbers of ranks. Variables that any job script may set do not count.
func disagreementError(candidates []rankStarter, env Environment) error {
	var first rankStarter
	var firstRank StartedRank
	for _, c := range candidates {
		if len(c.origin.programs) == 0 || !c.hasStarted(env) {
			continue
		}
		r, err := c.variableNames.readRank(env)
		switch {
		case err != nil:
		case first.displayName == "":
			first, firstRank = c, r
		case r.Rank != firstRank.Rank || r.RankCount != firstRank.RankCount:
			return &LaunchError{
				Problem: fmt.Sprintf("cannot tell which rank this is: %s, and %s; its ancestors in /proc do "+
					"not show which one started it; the other's variables are left from an outer launch",
					first.describeRank(firstRank), c.describeRank(r)),
				Fix: fmt.Sprintf("unset the variables of the outer one before this start "+
					"(unset %s, or unset %s), or submit the job without it", first.markVariable, c.markVariable),
			}
		}
	}
	return nil
}

func (s rankStarter) describeRank(r StartedRank) string {
	return fmt.Sprintf("%s says rank %d of %d (%s is set)",
		s.displayName, r.Rank, r.RankCount, s.markVariable)
}
