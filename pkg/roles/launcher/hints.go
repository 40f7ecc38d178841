package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// CommandHints are commands and terms of a launcher for messages. Entries that it does not have are
// empty. [ForNodes], [ForHost] and [CommandHints.StartOn] fill the marks in.
type CommandHints struct {
	Title           string // its display name
	StartOnNodes    string // how to start daemons on {n} nodes
	ExcludeNodes    string // how to start the job on other nodes than {nodes}
	MoreCPUs        string // requests {n} CPUs on a node
	MoreMemory      string // requests more memory on a node
	AllMemory       string // requests all memory of a node; empty: remove the limit
	MoreTime        string
	WhyEnded        string // what may have ended a job, and how to find out
	MemoryUsed      string // how to see how much memory the job has used
	ShowNode        string // how to see its state of {nodes}
	RunOnEachNode   string // how to run a command on each node
	DrainNode       string // how to drain {host} for a {reason}
	AttachShell     string // opens a shell on {host}
	NoRequeueReason string // why its jobs have no Requeuer, as a sentence
	// HowEnded is how to see how the containers of a job ended, where users cannot log in to a node; empty
	// if they can.
	HowEnded string
}

// CommandHints returns the launcher's words for a job with this id, or the zero CommandHints if it
// is unknown.
func (l Launcher) CommandHints(job string) CommandHints {
	spec := l.findSpec()
	if spec.formatJob != nil {
		job = spec.formatJob(job)
	}
	h := spec.hints
	h.NoRequeueReason = cmp.Or(h.NoRequeueReason, "only jobs of Slurm can be requeued")
	for _, text := range []*string{&h.WhyEnded, &h.MemoryUsed, &h.NoRequeueReason, &h.AttachShell, &h.HowEnded} {
		*text = strings.ReplaceAll(*text, "{job}", job)
	}
	return h
}

// ForNodes returns a command of the hints for a node list. If the command does not accept one, it has
// the mark {hosts:SEPARATOR}.
func ForNodes(command, nodes string) string {
	before, rest, found := strings.Cut(command, "{hosts:")
	separator, after, _ := strings.Cut(rest, "}")
	if !found {
		return strings.ReplaceAll(command, "{nodes}", nodes)
	}
	if hosts, err := ExpandNodeList(nodes, 0); err == nil {
		nodes = strings.Join(hosts, separator)
	}
	return before + nodes + after
}

// ForHost returns a command of the hints for a host and a reason, which may be empty.
func ForHost(command, host, reason string) string {
	return strings.NewReplacer("{host}", host, "{reason}", reason).Replace(command)
}

// StartOn returns the command that starts daemons on a number of nodes.
func (h CommandHints) StartOn(nodes int) string {
	return strings.ReplaceAll(h.StartOnNodes, "{n}", strconv.Itoa(nodes))
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
	// AlarmIsFinal reports that an ALRM is the time limit, which KILL follows.
	AlarmIsFinal bool
	// MaySignalAll reports that it may send a signal to all processes of a job, and not only to the
	// daemons.
	MaySignalAll bool
	// MayRelaunch reports that a daemon, or the whole job, may start again under the same name. The
	// run directories then show which attempt it is.
	MayRelaunch bool
	// RelaunchesEachDaemon reports that it restarts each failed daemon by itself, independently of the
	// others, and never for another job: a daemon that has ended with 0 is not restarted.
	RelaunchesEachDaemon bool
	// RequeuesEnded reports that it may itself requeue a job that it has ended, after a preemption or a
	// node failure.
	RequeuesEnded bool
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
