package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Launcher is the program that started the daemons of a run, as named in records.
type Launcher string

// launcher has all properties of a launcher. Each launcher has a file of its own, and a place in
// launchers.
type launcher struct {
	name   Launcher
	traits Traits
	// claim returns how certain it is that the launcher has started this process as a daemon.
	claim func(env Environment, want Want) claim
	// tasks is the same launcher as a starter of ranks. If it does not start ranks, only the origin is
	// set.
	tasks starter
	// identify determines the identity of this daemon. A launch that cannot work is a *LaunchError,
	// including one without any launcher.
	identify func(env Environment, hostname string, want Want) (Identity, error)
	words    func(job string) Words                 // for a job with this id
	requeuer func(job string, run Program) Requeuer // nil if it cannot requeue jobs
	memory   func(env Environment) int64            // memory in bytes that a job may use on this node; nil or 0: unknown
}

// launchers are all launchers that Identify knows. Of those with the same claim the first counts: a
// launcher that starts processes within another one's comes first, because they inherit its
// variables. If none has a claim, Slurm's error explains what is missing.
var launchers = []launcher{jsrunDaemons, openMPIDaemons, flux, palsDaemons, hydraDaemons, slurm, hosts, local, pbs, lsf, gridEngine, kubernetes, ranks}

// claim is how certain it is that a launcher has started a process as a daemon.
type claim int

const (
	unclaimed claim = iota
	hinted          // a part of its variables for a daemon is set
	sized           // the number of daemons is on the command line, and is used if no launcher provides one
	started         // all of its variables for a daemon are set
	told            // the command line says so
)

// Traits are the constant properties of a launcher. The names of variables are empty if it has
// none.
type Traits struct {
	// NamesNodes reports that it starts one daemon per node, and has its own name for each node.
	NamesNodes bool
	// Steps reports that a job can have several launches, which find each other by the job's id.
	Steps bool
	// Relaunches reports that it may start a daemon, or the whole job, again under the same name. The
	// run directories then show which attempt it is.
	Relaunches bool
	// RelaunchesEach reports that it restarts each failed daemon by itself, independently of the
	// others, and never for another job: a daemon that has ended with 0 is not restarted.
	RelaunchesEach bool
	// SignalsAll reports that it may send a signal to all processes of a job, and not only to the
	// daemons.
	SignalsAll bool
	// Starter is the program that starts the daemons, as in "before srun".
	Starter string
	// Private are the prefixes of variables that it sets for a daemon and that services must not get.
	Private []string

	Job       string // variable with the job's id
	Rank      string // variable with the daemon's index
	Host      string // variable with its own name of the node
	GPUs      string // variable with the number of GPUs on the node
	SubmitDir string // variable with the directory where the job was submitted
}

// Words are commands and terms of a launcher for messages. Entries that it does not have are empty
// or nil.
type Words struct {
	Title   string                    // its display name
	Nodes   func(n int) string        // command that starts daemons on n nodes
	Nested  string                    // what to do about a daemon that was started inside its own run
	Exclude func(nodes string) string // how to start the job on other nodes
	// Memory and AllMemory request more memory on a node, and all of it; Time requests more time.
	Memory, AllMemory, Time string
	WhyEnded                string                           // what may have ended a job, and how to find out
	MemoryUsed              string                           // how to see how much memory the job has used
	ShowNode                func(nodes string) string        // how to see its state of nodes
	OnEach                  string                           // how to run a command on each node
	Drain                   func(host, reason string) string // how to drain a node
	Attach                  func(host string) []string       // how to open a shell on a node of the job
	Gone                    string                           // when the job of a run without an end is over, as in "once …"
	NoRequeue               string                           // why its jobs have no Requeuer, as a sentence
}

// of returns the launcher with this name. An unknown launcher has neither traits nor words.
func (l Launcher) of() launcher {
	for _, known := range launchers {
		if known.name == l {
			return known
		}
	}
	return launcher{words: func(string) Words { return Words{} }}
}

// Traits returns the properties of the launcher, or the zero Traits if it is unknown.
func (l Launcher) Traits() Traits { return l.of().traits }

// Unable explains, as a sentence, why a job with this id cannot be requeued here.
func (l Launcher) Unable(job string) string { return cmp.Or(l.Words(job).NoRequeue, noSlurm) }

// Gone describes how to see that the job of a run without an end is over. It uses Slurm's program
// if the launcher is unknown.
func (l Launcher) Gone(job string) string { return cmp.Or(l.Words(job).Gone, slurmWords(job).Gone) }

// Starter returns the program that starts the daemons, for "before …". It returns Slurm's if the
// launcher has none.
func (l Launcher) Starter() string { return cmp.Or(l.Traits().Starter, slurm.traits.Starter) }

// Words returns the launcher's words for a job with this id, or the zero Words if it is unknown.
func (l Launcher) Words(job string) Words { return l.of().words(job) }

// Program runs a launcher's own program and returns its output. The error names the program, and
// includes its output.
type Program func(ctx context.Context, name string, args ...string) (printed string, err error)

// Requeuer starts a job again after it has ended.
type Requeuer interface {
	// Requeue requests the new start. The launcher may begin to end the job's processes before it
	// returns.
	Requeue(ctx context.Context) error
	// Exclude excludes hosts from the new start. It is called after Requeue.
	Exclude(ctx context.Context, hosts []string) error
}

// Requeuer returns a Requeuer for the job that uses the launcher's own programs. It returns nil if
// the launcher has none.
func (id Identity) Requeuer(run Program) Requeuer {
	by := id.Launcher.of().requeuer
	if by == nil || id.Job == "" {
		return nil
	}
	return by(id.Job, run)
}

// JobVariables returns the variables that distinguish jobs on the same node.
func JobVariables() []string {
	return variables(func(t Traits) string { return t.Job })
}

// JobOf returns the values of JobVariables in an environment, separated by spaces, or "none"
// outside of a job.
func JobOf(env Environment) string {
	var jobs []string
	for _, name := range JobVariables() {
		if job := env.get(name); job != "" {
			jobs = append(jobs, name+"="+job)
		}
	}
	return cmp.Or(strings.Join(jobs, " "), NoJob)
}

// NoJob is the result of JobOf outside of a job.
const NoJob = "none"

// IsOther reports whether an environment belongs to another job than the one for which JobOf
// returned job. An environment without some of the job's variables does not.
func IsOther(env Environment, job string) bool {
	known := strings.Fields(job)
	return slices.ContainsFunc(JobVariables(), func(name string) bool {
		return env.get(name) != "" && !slices.Contains(known, name+"="+env.get(name))
	})
}

// Private reports whether a launcher sets a variable to describe a daemon, or an MPI process,
// itself. A child that inherits it would mistake it for its own: an MPI library would connect to
// the PMI server of another process, or let the launcher start its children.
func Private(variable string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
	return slices.ContainsFunc(launchers, func(l launcher) bool { return slices.ContainsFunc(l.traits.Private, begins) })
}

// SubmitDir returns the directory where the job was submitted. It is empty if no launcher provides
// it.
func SubmitDir(env Environment) string {
	_, dir := env.firstOf(func(t Traits) string { return t.SubmitDir })
	return dir
}

// NodeName returns a launcher's name of this node, also outside of a launch, as in a prolog. It is
// empty if none provides it.
func NodeName(env Environment) string {
	_, name := env.firstOf(func(t Traits) string { return t.Host })
	return name
}

// Around returns the launcher of the job to which an environment belongs, also outside of a launch.
// It returns Slurm if there is none.
func Around(env Environment) Launcher {
	for _, l := range launchers {
		if l.traits.Job != "" && env.get(l.traits.Job) != "" {
			return l.name
		}
	}
	return Slurm
}

// GrantedMemory returns the number of bytes of memory that the job may use on this node according
// to the environment. It returns 0 if no launcher provides it, or if it is all memory of the node.
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

// SignalsAll reports whether the launcher of the job to which an environment belongs may signal all
// processes.
func SignalsAll(environ []string) bool {
	env := EnvironmentOf(environ)
	return slices.ContainsFunc(launchers, func(l launcher) bool { return l.traits.SignalsAll && env.get(l.traits.Job) != "" })
}

// BatchGPUs returns how many GPUs a job has on this node, also outside of a launch, as in a batch
// shell, and the variable with that number. It returns -1 if there is none.
func BatchGPUs(env Environment) (n int, from string) {
	from, _ = env.firstOf(func(t Traits) string { return t.GPUs })
	if n, err := env.number(0, from); err == nil {
		return n, from
	}
	return -1, ""
}

// IsFirst reports whether this is the task that reports errors for all tasks of a launch, even of a
// wrong one: its launcher gives it index 0, or none.
func IsFirst(env Environment, ancestry Ancestry) bool {
	by, err := likeliest(env, Want{}, ancestry.see())
	rank := env.get(by.traits.Rank)
	if err != nil || by.claim(env, Want{}) != started {
		_, rank = env.firstOf(func(t Traits) string { return t.Rank })
	}
	return rank == "" || rank == "0"
}

// variables returns the variables that the launchers have for a purpose.
func variables(of func(Traits) string) []string {
	var names []string
	for _, l := range launchers {
		if name := of(l.traits); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// firstOf returns the first variable that a launcher has for a purpose and that is set.
func (env Environment) firstOf(of func(Traits) string) (name, value string) {
	return env.first(variables(of)...)
}

// likeliest returns the launcher with the best claim to have started this process, among those that
// its ancestors allow. It returns Slurm if none has a claim. Its error is a *LaunchError.
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

// LaunchError is a launch that can never work. The caller exits with the code for a wrong launch
// and prints the error unchanged.
type LaunchError struct {
	Problem string // the mistake, beginning with "cannot"
	Mend    string // the command that works
	// Alone reports that no launcher has started this process as one of several: it is in a shell.
	Alone bool
}

// Error returns the problem and its fix on one line.
func (e *LaunchError) Error() string { return e.Problem + "; " + e.Mend }

// nestedError returns the error for a daemon inside its own run. The outer daemon waits for its
// driver, and the driver's daemon would join the run as a second process with the same index.
func nestedError(id Identity) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot start inside run %s as a part of it (%s=%s, rank %d on %s): this process is a child of that run's daemon",
			id.RunName(), RunVariable, id.RunName(), id.Rank, id.Host),
		Mend: id.Launcher.Words(id.Job).Nested,
	}
}
