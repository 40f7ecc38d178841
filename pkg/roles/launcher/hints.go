package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// CommandHints are commands and terms of a launcher for messages. Entries that it does not have are
// empty or nil.
type CommandHints struct {
	Title        string             // its display name
	StartOnNodes func(n int) string // command that starts daemons on n nodes
	// what to do about a daemon that was started inside its own run, besides another --job-id
	NestedAdvice string
	ExcludeNodes func(nodes string) string // how to start the job on other nodes
	// MoreMemory and AllMemory request more memory on a node, and all of it; MoreTime requests more
	// time.
	MoreMemory, AllMemory, MoreTime string
	// what may have ended a job, and how to find out
	WhyEnded string
	// how to see how much memory the job has used
	MemoryUsed string
	ShowNode   func(nodes string) string // how to see its state of nodes
	// how to run a command on each node
	RunOnEachNode string
	DrainNode     func(host, reason string) string // how to drain a node
	// how to open a shell on a node of the job
	AttachShell func(host string) []string
	// why its jobs have no Requeuer, as a sentence
	NoRequeueReason string
}

// jobMark stands for the job in the hints of a launcher.
const jobMark = "{job}"

// CommandHints returns the launcher's words for a job with this id, or the zero CommandHints if it
// is unknown.
func (l Launcher) CommandHints(job string) CommandHints {
	spec := l.findSpec()
	if spec.formatJob != nil {
		job = spec.formatJob(job)
	}
	h := spec.hints
	for _, text := range []*string{&h.WhyEnded, &h.MemoryUsed, &h.NoRequeueReason} {
		*text = strings.ReplaceAll(*text, jobMark, job)
	}
	if attach := spec.hints.AttachShell; attach != nil {
		h.AttachShell = func(host string) []string {
			argv := slices.Clone(attach(host))
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], jobMark, job)
			}
			return argv
		}
	}
	return h
}

// NoRequeueReason explains, as a sentence, why a job with this id cannot be requeued here.
func (l Launcher) NoRequeueReason(job string) string {
	return cmp.Or(l.CommandHints(job).NoRequeueReason, noSlurmReason)
}

// nestedNameAdvice is the fix for a daemon inside its own run if the user can name runs.
const nestedNameAdvice = "give the inner one another --job-id"

// noSlurmReason explains why a job of an unknown launcher cannot be requeued.
const noSlurmReason = "only jobs of Slurm can be requeued"

// forCount returns a command for a number of nodes.
func forCount(format string) func(n int) string {
	return func(n int) string { return fmt.Sprintf(format, n) }
}

// forNodes returns a command for the nodes of a list.
func forNodes(format string) func(nodes string) string {
	return func(nodes string) string { return fmt.Sprintf(format, nodes) }
}

// forHosts returns a command for the nodes of a list, which are separated by sep there.
func forHosts(format, sep string) func(nodes string) string {
	return func(nodes string) string {
		if hosts, err := ExpandNodeList(nodes, 0); err == nil {
			nodes = strings.Join(hosts, sep)
		}
		return fmt.Sprintf(format, nodes)
	}
}

// forHost returns a command for a host, which is %[1]s in the format, and a reason, %[2]s.
func forHost(format string) func(host, reason string) string {
	return func(host, reason string) string { return fmt.Sprintf(format, host, reason) }
}

// bracketElement writes the index of an element of an array in brackets: "17-4" is "17[4]".
func bracketElement(job string) string {
	if job, index, isElement := strings.Cut(job, "-"); isElement {
		return job + "[" + index + "]"
	}
	return job
}

// beforeDash returns the number of a job without the index of an element of an array, or the
// outermost one of nested jobs.
func beforeDash(job string) string {
	job, _, _ = strings.Cut(job, "-")
	return job
}

// Facts are what a launcher does to jobs and daemons, with its default configuration. The table in
// docs/launchers.md has the same numbers and signals.
type Facts struct {
	// KillDelay is the time from TERM to KILL when the launcher ends a job. It is 0 if no KILL is
	// known to follow, or if it follows without a TERM. KillSetting is where a site changes it.
	KillDelay   time.Duration
	KillSetting string
	// TermIsFinal reports that KILL follows every TERM after KillDelay. Otherwise a TERM is only final
	// with a CONT (Slurm).
	TermIsFinal bool
	// TimeLimitSignal is the first signal at a time limit. It is 0 if the launcher has none.
	TimeLimitSignal syscall.Signal
	// MaySignalAll reports that it may send a signal to all processes of a job, and not only to the
	// daemons.
	MaySignalAll bool
	// MayRelaunch reports that a daemon, or the whole job, may start again under the same name. The
	// run directories then show which attempt it is.
	MayRelaunch bool
	// RelaunchesEachDaemon reports that it restarts each failed daemon by itself, independently of the
	// others, and never for another job: a daemon that has ended with 0 is not restarted.
	RelaunchesEachDaemon bool
}

// Facts returns the facts about the launcher, or the zero Facts if there are none.
func (l Launcher) Facts() Facts { return l.findSpec().facts }

// LosesDaemonsForGood reports that nothing restarts a daemon that has died: bringupd itself has
// started the daemons. With other launchers, a loop in the user's script may restart them.
func (l Launcher) LosesDaemonsForGood() bool { return l == LauncherLocal || l == LauncherHosts }

// MaySignalAll reports whether the launcher of the job to which an environment belongs may signal
// all processes.
func MaySignalAll(environ []string) bool {
	env := EnvironmentOf(environ)
	return slices.ContainsFunc(allLaunchers, func(l *launcherSpec) bool {
		return l.facts.MaySignalAll && env.valueOf(l.traits.JobVariable) != ""
	})
}

// DescribeGrace describes the time that a driver has to save its work: the one that the user has
// given, or a shorter one, and then what limits it.
func (l Launcher) DescribeGrace(actual, given time.Duration) string {
	if actual >= given {
		return textutil.FlagDuration(given) + " (--driver-grace)"
	}
	text := fmt.Sprintf("%s of its --driver-grace=%s",
		textutil.FlagDuration(actual.Round(time.Second/10)), textutil.FlagDuration(given))
	if f := l.Facts(); f.KillDelay > 0 {
		text += fmt.Sprintf(", because %s kills the job %s after TERM (%s)",
			l.CommandHints("").Title, textutil.FlagDuration(f.KillDelay), f.KillSetting)
	}
	return text
}
