package launcher

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Launcher is the program that started the daemons of a run, as named in records.
type Launcher string

// The launchers. Each has a table of its properties, a [launcherSpec], in a file of its own.
const (
	LauncherSlurm      Launcher = "slurm"
	LauncherPBS        Launcher = "pbs"
	LauncherPALS       Launcher = "pals"
	LauncherFlux       Launcher = "flux"
	LauncherLSF        Launcher = "lsf"
	LauncherOpenMPI    Launcher = "openmpi"
	LauncherMPICH      Launcher = "mpich"
	LauncherKubernetes Launcher = "kubernetes"
	LauncherHosts      Launcher = "hosts" // "bringupd hosts"
	LauncherLocal      Launcher = "local" // "bringupd local"
	// LauncherRanks is any launcher that sets RANK and WORLD_SIZE, or a user who gives the flags.
	LauncherRanks Launcher = "ranks"
)

// launcherSpec has all properties of a launcher.
type launcherSpec struct {
	name   Launcher
	traits Traits
	facts  Facts
	// hints has {job} where the words are about a job, as formatJob writes it.
	hints     CommandHints
	formatJob func(job string) string // nil: as in the names of runs
	query     jobQuery                // zero if none of its programs prints a job's state
	oneEach   string                  // how it starts one daemon per node, if the starter counts them
	nestedFix string                  // for a daemon inside its own run, besides another --job-id
	// claim decides whether the launcher has started a process as a daemon.
	claim func(env Environment, want Overrides) claimLevel
	// starter is the same launcher as a starter of ranks. If it does not start ranks, only the origin
	// is set.
	starter rankStarter
	// inShell is the error for a process in a job that the starter has not started; nil if the claim
	// of the launcher excludes that.
	inShell *LaunchError
	// nameJob returns the job and the step of a daemon that the starter has started, and what
	// distinguishes the launch from another one with the same name.
	nameJob func(env Environment, want Overrides) (job, step string, facts []string)
	// completeJob returns variables of the job that the launcher does not give to all of its tasks. It
	// may be nil.
	completeJob func(env Environment) map[string]string
	// identify determines the identity of this daemon. A launch that cannot work is a *LaunchError,
	// including one without any launcher. It is nil if the starter's variables are sufficient.
	identify func(env Environment, hostname string, want Overrides) (Identity, error)
}

// allLaunchers are all launchers that IdentifyDaemon knows. Of those with the same claim the first
// counts: a launcher that starts processes within another one's comes first, because they inherit
// its variables. If none has a claim, Slurm's error explains what is missing.
var allLaunchers = []*launcherSpec{
	&openMPILauncher, &fluxLauncher, &palsLauncher, &hydraLauncher, &slurmLauncher, &hostsLauncher,
	&localLauncher, &pbsLauncher, &lsfLauncher, &kubernetesLauncher, &ranksLauncher,
}

// claimLevel is how certain it is that a launcher has started a process as a daemon.
type claimLevel int

const (
	claimNone      claimLevel = iota
	claimSizeGiven            // only the number of daemons is on the command line
	claimHinted               // a part of its variables for a daemon is set
	claimStarted              // all of its variables for a daemon are set
	claimGiven                // the command line says so
)

// claimBy returns the claim of a launcher that sets all of the variables in started for a daemon. One
// of the variables in hinted is also set outside of a launch.
func claimBy(started []string, hinted ...string) func(Environment, Overrides) claimLevel {
	return func(env Environment, _ Overrides) claimLevel {
		isSet := func(name string) bool { return env.valueOf(name) != "" }
		isMissing := func(name string) bool { return !isSet(name) }
		switch {
		case !slices.ContainsFunc(started, isMissing):
			return claimStarted
		case slices.ContainsFunc(hinted, isSet):
			return claimHinted
		default:
			return claimNone
		}
	}
}

// givenIf returns the claim of a launcher that is bringupd itself.
func givenIf(isGiven bool) claimLevel {
	if isGiven {
		return claimGiven
	}
	return claimNone
}

// Traits are the constant properties of a launcher. The names of variables are empty if it has
// none.
type Traits struct {
	// NamesNodes reports that it starts one daemon per node, and has its own name for each node.
	NamesNodes bool
	// HasSteps reports that a job can have several launches, which find each other by the job's id.
	HasSteps bool
	// StarterProgram is the program that starts the daemons, as in "before srun".
	StarterProgram string
	// MergesErrors reports that this program writes the standard errors of all tasks to its own.
	MergesErrors bool
	// PrivatePrefixes are the prefixes of variables that services must not get: those that describe
	// the daemon's own task, and those from which an mpirun takes the job's nodes.
	PrivatePrefixes []string

	JobVariable       string // variable with the job's id
	JobNameVariable   string // variable with the user's name of the job
	RankVariable      string // variable with the daemon's index
	SubmitDirVariable string // variable with the directory where the job was submitted
}

// findSpec returns the launcher with this name. An unknown launcher has neither traits nor words.
func (l Launcher) findSpec() *launcherSpec {
	for _, known := range allLaunchers {
		if known.name == l {
			return known
		}
	}
	return &launcherSpec{}
}

// Traits returns the properties of the launcher, or the zero Traits if it is unknown.
func (l Launcher) Traits() Traits { return l.findSpec().traits }

// StarterProgram returns the program that starts the daemons, for "before …". It returns Slurm's
// if the launcher has none.
func (l Launcher) StarterProgram() string {
	return cmp.Or(l.Traits().StarterProgram, slurmLauncher.traits.StarterProgram)
}

// ProgramRunner runs a launcher's own program and returns its output. The error names the program,
// and includes its output.
type ProgramRunner func(ctx context.Context, name string, args ...string) (printed string, err error)

// RequeueTimeout is the timeout of each call of a [Requeuer].
const RequeueTimeout = 10 * time.Second

// Requeuer starts a job again after it has ended.
type Requeuer interface {
	// RequeueJob requests the new start. The launcher may begin to end the job's processes before it
	// returns.
	RequeueJob(ctx context.Context) error
	// ExcludeHosts excludes hosts from the new start. It is called after RequeueJob.
	ExcludeHosts(ctx context.Context, hosts []string) error
}

// NewRequeuer returns a Requeuer for the job that uses the launcher's own programs. It returns nil
// if the launcher has none. Slurm itself reports that an allocation without a batch script cannot be
// requeued.
func (id Identity) NewRequeuer(run ProgramRunner) Requeuer {
	if id.Launcher != LauncherSlurm || id.Job == "" {
		return nil
	}
	return slurmRequeuer{id.Job, run}
}

// JobVariables returns the variables that distinguish jobs on the same node.
func JobVariables() []string {
	return launcherVariables(func(t Traits) string { return t.JobVariable })
}

// NoJob is the result of JobIdentity outside of a job.
const NoJob = "none"

// JobIdentity returns the values of JobVariables in an environment, separated by spaces, or NoJob.
func JobIdentity(env Environment) string {
	var jobs []string
	for _, name := range JobVariables() {
		if job := env.valueOf(name); job != "" {
			jobs = append(jobs, name+"="+job)
		}
	}
	return cmp.Or(strings.Join(jobs, " "), NoJob)
}

// IsOtherJob reports whether an environment belongs to another job than the one for which
// JobIdentity returned job. An environment without some of the job's variables does not.
func IsOtherJob(env Environment, job string) bool {
	known := strings.Fields(job)
	return slices.ContainsFunc(JobVariables(), func(name string) bool {
		return env.valueOf(name) != "" && !slices.Contains(known, name+"="+env.valueOf(name))
	})
}

// SubmitDir returns the directory where the job was submitted. It is empty if no launcher
// provides it.
func SubmitDir(env Environment) string {
	_, dir := env.firstSet(launcherVariables(func(t Traits) string { return t.SubmitDirVariable })...)
	return dir
}

// SurroundingLauncher returns the launcher of the job to which an environment belongs, also outside
// of a launch. It returns Slurm if there is none.
func SurroundingLauncher(env Environment) Launcher {
	for _, l := range allLaunchers {
		if env.valueOf(l.traits.JobVariable) != "" {
			return l.name
		}
	}
	return LauncherSlurm
}

// LeavesErrors reports whether this task leaves it to the one with index 0 to report an error that
// all tasks of a launch have, because the launcher writes what they report to one place. Variables
// of other launchers, in which this one runs, do not count. Neither do those that a world of bringupd
// gives to a rank: what the rank runs is no task of its launch.
func LeavesErrors(env Environment) bool {
	l, err := likeliestLauncher(env, Overrides{})
	if err != nil || l.claim(env, Overrides{}) == claimNone {
		return false
	}
	rank := env.valueOf(l.traits.RankVariable)
	isOfWorld := rank == env.valueOf(worldStarter.markVariable)
	return l.traits.MergesErrors && rank != "" && rank != "0" && !isOfWorld
}

func launcherVariables(of func(Traits) string) []string {
	var names []string
	for _, l := range allLaunchers {
		if name := of(l.traits); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// likeliestLauncher returns the launcher with the best claim to have started this process, among
// those that its ancestors allow. It returns Slurm if none has a claim. Its error is a
// *LaunchError.
func likeliestLauncher(env Environment, want Overrides) (*launcherSpec, error) {
	levels := make(map[*launcherSpec]claimLevel)
	var claiming []*launcherSpec
	var starters []rankStarter
	for _, l := range allLaunchers {
		if levels[l] = l.claim(env, want); levels[l] != claimNone {
			claiming, starters = append(claiming, l), append(starters, l.starter)
		}
	}
	byClaim := func(a, b *launcherSpec) int { return cmp.Compare(levels[a], levels[b]) }
	if len(claiming) > 1 && levels[slices.MaxFunc(claiming, byClaim)] != claimGiven {
		left, err := innermostStarters(starters, env, want.Ancestors)
		if err != nil {
			return nil, err
		}
		claiming = slices.DeleteFunc(claiming, func(l *launcherSpec) bool {
			isOwn := func(s rankStarter) bool { return s.displayName == l.starter.displayName }
			return !slices.ContainsFunc(left, isOwn)
		})
	}
	if len(claiming) == 0 {
		return &slurmLauncher, nil
	}
	return slices.MaxFunc(claiming, byClaim), nil
}

// IsAlone reports whether nothing in an environment is a sign of a launcher or of its job.
func IsAlone(env Environment) bool {
	return !slices.ContainsFunc(allLaunchers, func(l *launcherSpec) bool {
		return l.claim(env, Overrides{}) != claimNone
	})
}

// LaunchError is a launch that can never work. The caller exits with the code for a wrong launch
// and prints the error unchanged.
type LaunchError struct {
	Problem string // the mistake, beginning with "cannot"
	Fix     string // the command that works
	// LocalFix is the alternative to Fix for a single node, beginning with "or"; empty if none.
	LocalFix string
	// InShell reports that no launcher has started this process as one of several: it is in a shell.
	InShell bool
	// SameForAll reports that all tasks of the launch have this problem.
	SameForAll bool
}

// Error returns the problem and its fixes on one line.
func (e *LaunchError) Error() string {
	text := e.Problem + "; " + e.Fix
	if e.LocalFix != "" {
		text += ", " + e.LocalFix
	}
	return text
}

// shellError returns the error for a daemon in the shell of a job, which the launcher's program has
// not started.
func shellError(shell, starter, fix string) *LaunchError {
	return &LaunchError{
		Problem: "cannot start in " + shell + ": " + starter + " has started this process, " +
			"and bringupd runs once on every node",
		Fix:      "start it with: " + fix,
		LocalFix: "or on this node alone with: bringupd local --nodes=N …",
		InShell:  true,
	}
}
