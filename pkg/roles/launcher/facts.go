package launcher

import (
	"slices"
	"syscall"
	"time"
)

// Facts are what a launcher does to jobs and daemons, with its default configuration. The table in
// docs/launchers.md has the same contents.
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

	// The following are only for the documentation: when a job starts again, which variables reach
	// the daemons, what happens to a job that loses a host, and what starts several daemons there.
	Restart, Variables, LostHost, SeveralPerHost string
}

// launcherFacts are the facts about all launchers.
var launcherFacts = map[Launcher]Facts{
	// proctrack/linuxproc signals all descendants of slurmstepd (kill_proc_tree), and so does
	// proctrack/cgroup with SignalChildrenProcesses=yes. Otherwise, and with proctrack/pgid, only the
	// tasks get a signal. A step does not know which one is used.
	LauncherSlurm: {
		KillDelay: 30 * time.Second, KillSetting: "`KillWait`", TimeLimitSignal: syscall.SIGTERM, MaySignalAll: true,
		Restart: "after a node failure (`JobRequeue`), counted", Variables: "all of the script",
		LostHost: "ends after `SlurmdTimeout` (300 s)", SeveralPerHost: "`--ntasks-per-node` above 1",
	},
	LauncherPBS: {
		KillDelay: 10 * time.Second, KillSetting: "`kill_delay` of the queue", TermIsFinal: true, TimeLimitSignal: syscall.SIGTERM, MayRelaunch: true,
		Restart: "after a node failure (`node_fail_requeue`, 310 s) unless `qsub -r n`", Variables: "those of `qsub -v` (and `-V`, which OpenPBS 23.06 ignores), no `PBS_ARRAY_INDEX`",
		LostHost: "`pbsdsh` waits for minutes; the job ends with its script", SeveralPerHost: "`pbsdsh`: one task per line of `PBS_NODEFILE`",
	},
	LauncherPALS: {
		KillDelay: 10 * time.Second, KillSetting: "`kill_delay` of the queue", TermIsFinal: true, TimeLimitSignal: syscall.SIGTERM,
		Restart: "as PBS, under another name", Variables: "all of the script", LostHost: "`mpiexec` ends", SeveralPerHost: "`--ppn` above 1",
	},
	// The ids of an instance that is started by hand begin at its start, so they may repeat.
	LauncherFlux: {
		KillDelay: 5 * time.Second, KillSetting: "`exec.kill-timeout`", TermIsFinal: true, TimeLimitSignal: syscall.SIGALRM, MayRelaunch: true,
		Restart: "never; an instance of `flux start` may repeat an id", Variables: "all of the script",
		LostHost: "a fatal exception ends the job", SeveralPerHost: "`--tasks-per-node` above 1",
	},
	LauncherLSF: lsfFacts("`blaunch` without `-z`: one task per slot"),
	LauncherJSM: lsfFacts("`--rs_per_host` above 1"),
	LauncherGridEngine: {
		TimeLimitSignal: syscall.SIGKILL, MayRelaunch: true,
		Restart: "after a node failure with `qsub -r y`", Variables: "those of `qrsh -inherit -V`",
		LostHost: "its `qrsh` fails; the job ends with its script", SeveralPerHost: "a script that calls `qrsh` twice",
	},
	LauncherOpenMPI: {MayRelaunch: true, Restart: "never", Variables: "those of `-x`", LostHost: "`mpirun` ends", SeveralPerHost: "no `--map-by ppr:1:node`"},
	LauncherMPICH:   {MayRelaunch: true, Restart: "never", Variables: "all", LostHost: "`mpiexec` ends", SeveralPerHost: "no `-ppn 1`"},
	// A pod does not get its grace period.
	LauncherKubernetes: {
		KillDelay: 30 * time.Second, KillSetting: "`terminationGracePeriodSeconds`", TimeLimitSignal: syscall.SIGTERM, MayRelaunch: true, RelaunchesEachDaemon: true,
		Restart: "each failed pod (`backoffLimitPerIndex`)", Variables: "those of the manifest",
		LostHost: "its pods are replaced after 300 s", SeveralPerHost: "several pods, each a node of its own",
	},
	LauncherHosts: {Restart: "never", Variables: "none but `BRINGUPD_…`", LostHost: "ends by the peer link", SeveralPerHost: "a host that is listed twice"},
	LauncherLocal: {Restart: "never", Variables: "all", LostHost: "ends", SeveralPerHost: "always"},
}

// lsfFacts returns the facts about launchers under LSF, which sends INT, TERM and KILL.
func lsfFacts(several string) Facts {
	return Facts{
		KillDelay: 10 * time.Second, KillSetting: "`JOB_TERMINATE_INTERVAL`", TermIsFinal: true, TimeLimitSignal: syscall.SIGUSR2, MayRelaunch: true,
		Restart: "with `bsub -r` or `REQUEUE_EXIT_VALUES`", Variables: "all of the script", LostHost: "ends as `UNKNOWN`, or restarts with `-r`", SeveralPerHost: several,
	}
}

// LosesDaemonsForGood reports that nothing restarts a daemon that has died: bringupd itself has
// started the daemons. With other launchers, a loop in the user's script may restart them.
func (l Launcher) LosesDaemonsForGood() bool { return l == LauncherLocal || l == LauncherHosts }

// Facts returns the facts about the launcher, or the zero Facts if there are none.
func (l Launcher) Facts() Facts { return launcherFacts[l] }

// MaySignalAll reports whether the launcher of the job to which an environment belongs may signal
// all processes.
func MaySignalAll(environ []string) bool {
	env := EnvironmentOf(environ)
	return slices.ContainsFunc(allLaunchers, func(l launcherSpec) bool {
		return l.name.Facts().MaySignalAll && env.valueOf(l.traits.JobVariable) != ""
	})
}
