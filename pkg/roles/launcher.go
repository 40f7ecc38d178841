package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Launcher is what started the daemons of one run, as records name it.
type Launcher string

// launcher is all that is particular to one launcher. Each has a file of its own, and its place in launchers.
type launcher struct {
	name   Launcher
	traits Traits
	// claim tells how sure it is that it has started this process as a daemon.
	claim func(env Environment, want Want) claim
	// tasks is the same launcher as a starter of ranks; a launcher that is no such one has its origin alone.
	tasks starter
	// identify finds out who this daemon is. A launch that cannot work is a *LaunchError, also one by nobody.
	identify func(env Environment, hostname string, want Want) (Identity, error)
	words    func(job string) Words                 // for a job of this id
	requeuer func(job string, run Program) Requeuer // nil: it can't start a job anew
	memory   func(env Environment) int64            // in bytes, that a job may use on this node; nil or 0: it does not say
}

// launchers are all that Identify knows. Of those with the same claim the first counts: what starts processes within
// another's comes before that, for they inherit what it was told. Where none has a claim, Slurm says what is missing.
var launchers = []launcher{jsrunDaemons, openMPIDaemons, flux, palsDaemons, hydraDaemons, slurm, hosts, local, pbs, lsf, gridEngine, kubernetes, ranks}

// claim is how sure a launcher is that it has started a process as a daemon.
type claim int

const (
	unclaimed claim = iota
	hinted          // a part of what it tells a daemon is there
	sized           // the number of daemons is on the command line, and counts where no launcher tells one
	started         // all that it tells a daemon is there
	told            // the command line says so
)

// Traits are what is so of a launcher, whatever it has started. The names of variables are empty where it has none.
type Traits struct {
	// NamesNodes says that it starts one daemon a node, and has a name of its own for each node.
	NamesNodes bool
	// Steps says that a job may have several launches, which find each other by the job's id.
	Steps bool
	// Relaunches says that it may start a daemon, or the whole job, anew under the same name: the run directories there
	// tell which attempt it is.
	Relaunches bool
	// RelaunchesEach says that it does so by itself with each daemon that has failed, whatever the others do, and never
	// to start something else: what has ended well is not begun again.
	RelaunchesEach bool
	// SignalsAll says that it may send a signal to all processes of a job, and not to the daemons alone.
	SignalsAll bool
	// Starter is what starts the daemons, as in "before srun".
	Starter string
	// Private are the beginnings of the variables that it tells a daemon and that are not for its services.
	Private []string

	Job       string // variable with the job's id
	Rank      string // variable with the daemon's rank
	Host      string // variable with its own name of the node
	GPUs      string // variable with the number of GPUs on the node
	SubmitDir string // variable with the directory where the job was submitted
}

// Words are what people are told to type, in the words of a launcher. What it has none for is empty or nil.
type Words struct {
	Title   string                    // its name, for people
	Nodes   func(n int) string        // to start daemons on n nodes
	Nested  string                    // what to do about a daemon that was started inside the run it is of
	Exclude func(nodes string) string // to start the job on other nodes
	// Memory and AllMemory ask for more memory on a node and for all of it; Time asks for more time.
	Memory, AllMemory, Time string
	WhyEnded                string                           // what may have ended a job, and how to see which it was
	MemoryUsed              string                           // to see how much memory the job has used
	ShowNode                func(nodes string) string        // to see what it knows of nodes
	OnEach                  string                           // to run a command on each node
	Drain                   func(host, reason string) string // to take a node out of service
	Attach                  func(host string) []string       // to get a shell on a node of the job
	Gone                    string                           // when the job of a run without an end is over, as in "once …"
	NoRequeue               string                           // why a job of its has no Requeuer, as a sentence
}

// of returns the launcher of that name; an unknown one has neither traits nor words.
func (l Launcher) of() launcher {
	for _, known := range launchers {
		if known.name == l {
			return known
		}
	}
	return launcher{words: func(string) Words { return Words{} }}
}

// Traits are what is so of the launcher; the zero Traits where it isn't known.
func (l Launcher) Traits() Traits { return l.of().traits }

// Unable is why a job of this id can't be started anew here, as a sentence.
func (l Launcher) Unable(job string) string { return cmp.Or(l.Words(job).NoRequeue, noSlurm) }

// Gone is how to see that the job of a run without an end is over; by Slurm's program where the launcher isn't known.
func (l Launcher) Gone(job string) string { return cmp.Or(l.Words(job).Gone, slurmWords(job).Gone) }

// Starter is what starts the daemons, for "before …"; Slurm's where the launcher has none of its own.
func (l Launcher) Starter() string { return cmp.Or(l.Traits().Starter, slurm.traits.Starter) }

// Words are the launcher's for a job of this id; the zero Words where it isn't known.
func (l Launcher) Words(job string) Words { return l.of().words(job) }

// Program runs a launcher's own program to its end and returns what it has printed. The error says which program it
// was, and what it has said.
type Program func(ctx context.Context, name string, args ...string) (printed string, err error)

// Requeuer has a launcher start one job anew when it has ended.
type Requeuer interface {
	// Requeue asks for the new start. The launcher may begin to end what runs of the job before it returns.
	Requeue(ctx context.Context) error
	// Exclude keeps the new start off hosts. It comes after Requeue.
	Exclude(ctx context.Context, hosts []string) error
}

// Requeuer returns who can have the job started anew, by the launcher's own programs; nil where nobody can.
func (id Identity) Requeuer(run Program) Requeuer {
	by := id.Launcher.of().requeuer
	if by == nil || id.Job == "" {
		return nil
	}
	return by(id.Job, run)
}

// JobVariables are the variables that tell one job from another on the same node.
func JobVariables() []string {
	return variables(func(t Traits) string { return t.Job })
}

// JobOf returns the variables that tell one job from another, as they are in an environment, separated
// by blanks; "none" outside of a job.
func JobOf(env Environment) string {
	var jobs []string
	for _, name := range JobVariables() {
		if job := env.get(name); job != "" {
			jobs = append(jobs, name+"="+job)
		}
	}
	return cmp.Or(strings.Join(jobs, " "), NoJob)
}

// NoJob is what JobOf returns outside of a job.
const NoJob = "none"

// IsOther reports whether an environment is of another job than the one that JobOf has returned. One
// that lacks variables of that job is not.
func IsOther(env Environment, job string) bool {
	known := strings.Fields(job)
	return slices.ContainsFunc(JobVariables(), func(name string) bool {
		return env.get(name) != "" && !slices.Contains(known, name+"="+env.get(name))
	})
}

// Private tells whether a variable is what a launcher tells a daemon, or an MPI process, about itself. Who inherits
// it from a daemon would take it for its own: an MPI library would look for a PMI server that serves another process,
// or have the launcher start its children.
func Private(variable string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
	return slices.ContainsFunc(launchers, func(l launcher) bool { return slices.ContainsFunc(l.traits.Private, begins) })
}

// SubmitDir is the directory where the job was submitted; empty where no launcher tells.
func SubmitDir(env Environment) string {
	_, dir := env.firstOf(func(t Traits) string { return t.SubmitDir })
	return dir
}

// NodeName is a launcher's name of this node, also outside of a launch, as in a prolog; empty where none tells.
func NodeName(env Environment) string {
	_, name := env.firstOf(func(t Traits) string { return t.Host })
	return name
}

// Around is the launcher whose job an environment is of, also outside of a launch; Slurm where none tells.
func Around(env Environment) Launcher {
	for _, l := range launchers {
		if l.traits.Job != "" && env.get(l.traits.Job) != "" {
			return l.name
		}
	}
	return Slurm
}

// GrantedMemory returns how many bytes of memory the launcher of an environment says that the job may use on this node. It
// returns 0 if no launcher says so, or if that is all of the node's.
func GrantedMemory(environ []string) int64 {
	for _, l := range launchers {
		if l.memory == nil {
			continue
		}
		if bytes := l.memory(EnvironmentOf(environ)); bytes > 0 {
			return bytes
		}
	}
	return 0
}

// SignalsAll reports whether the job that an environment is of may be one whose launcher signals all processes.
func SignalsAll(environ []string) bool {
	env := EnvironmentOf(environ)
	return slices.ContainsFunc(launchers, func(l launcher) bool { return l.traits.SignalsAll && env.get(l.traits.Job) != "" })
}

// BatchGPUs returns how many GPUs a job was given on this node, also outside of a launch, as in a batch shell, and the
// variable that tells it; -1 where none does.
func BatchGPUs(env Environment) (n int, from string) {
	from, _ = env.firstOf(func(t Traits) string { return t.GPUs })
	if n, err := env.number(0, from); err == nil {
		return n, from
	}
	return -1, ""
}

// IsFirst reports whether this is the task that speaks for all of a launch, however wrong that is: the
// launcher that has started it gives it rank 0, or none.
func IsFirst(env Environment, ancestry Ancestry) bool {
	by, err := likeliest(env, Want{}, ancestry.see())
	rank := env.get(by.traits.Rank)
	if err != nil || by.claim(env, Want{}) != started {
		_, rank = env.firstOf(func(t Traits) string { return t.Rank })
	}
	return rank == "" || rank == "0"
}

// variables returns the variables of all launchers that have one for this.
func variables(of func(Traits) string) []string {
	var names []string
	for _, l := range launchers {
		if name := of(l.traits); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// firstOf returns the first variable that a launcher has for this and that is set.
func (env Environment) firstOf(of func(Traits) string) (name, value string) {
	return env.first(variables(of)...)
}

// likeliest returns the launcher with the best claim to have started this process, of those that its
// ancestors speak for; Slurm if none has a claim. Its error is a *LaunchError.
func likeliest(env Environment, want Want, ancestors []Ancestor) (launcher, error) {
	claims := slices.DeleteFunc(slices.Clone(launchers), func(l launcher) bool { return l.claim(env, want) == unclaimed })
	byClaim := func(a, b launcher) int { return cmp.Compare(a.claim(env, want), b.claim(env, want)) }
	if len(claims) > 1 && slices.MaxFunc(claims, byClaim).claim(env, want) != told {
		var tasks []starter
		for _, l := range claims {
			tasks = append(tasks, l.tasks)
		}
		left, err := innermost(tasks, env, ancestors)
		if err != nil {
			return launcher{}, err
		}
		claims = slices.DeleteFunc(claims, func(l launcher) bool {
			return !slices.ContainsFunc(left, func(s starter) bool { return s.title == l.tasks.title })
		})
	}
	if len(claims) == 0 {
		return slurm, nil
	}
	return slices.MaxFunc(claims, byClaim), nil
}

// LaunchError is a launch that cannot work, however often it is tried: the caller ends with the code for a
// wrong launch and shows the error as it is.
type LaunchError struct {
	Problem string // what is wrong, beginning with "cannot"
	Mend    string // what to type instead
	// Alone says that nothing has launched this process as one of several: it is in a shell.
	Alone bool
}

// Error returns the problem and its mend as one line.
func (e *LaunchError) Error() string { return e.Problem + "; " + e.Mend }

// nestedError: the outer daemon waits for its driver, and the driver's daemon would join the outer one's run
// as a second process of the same rank.
func nestedError(id Identity) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot start inside run %s as a part of it (%s=%s, rank %d on %s): this process is a child of that run's daemon",
			id.RunName(), RunVariable, id.RunName(), id.Rank, id.Host),
		Mend: id.Launcher.Words(id.Job).Nested,
	}
}
