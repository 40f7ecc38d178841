package health

import (
	"cmp"
	"os"
	"syscall"
	"time"
)

// SignalHistory are the signals that a daemon has received so far, and their meaning.
//
// When Slurm ends a step (scancel, a time limit, a preemption) it sends CONT and TERM, and KILL
// after KillWait: such a TERM is final, and everything must have ended by then. Its warning
// (--signal=TERM@120) looks the same, and is handled as the end. A TERM alone is early, from a user
// or a launcher that is not known to kill: the grace periods may have their full length. Under
// other batch systems each TERM is final, and ALRM, the time limit of Flux, is like it.
type SignalHistory struct {
	LauncherSignals
	ByLauncher bool // whether only the launcher can have sent the final signal

	endSignal      syscall.Signal // the signal that ends the run; 0 if there is none
	endRequestedAt time.Time      // when the end was requested; a final TERM restarts it
	repeatedAt     time.Time      // when it was requested again; zero: never
	finalTermAt    time.Time      // time of the first final TERM or ALRM; zero: there was none

	lastTerm, lastCont time.Time // the newest of each
}

// LauncherSignals are the signals by which a launcher ends a job.
type LauncherSignals struct {
	KillDelay    time.Duration // from a final TERM to KILL; 0: that of Slurm
	TermIsFinal  bool          // whether KILL follows every TERM
	AlarmIsFinal bool          // whether ALRM is the time limit, and KILL follows it
}

// IsEnd reports whether a signal ends the run.
func (l LauncherSignals) IsEnd(sig os.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGALRM && l.AlarmIsFinal
}

// LaunchFailureSignal is sent to a daemon as a signal, by a launcher that has failed to start the
// others, with the reason as a sentence. The run then ends like a wrong launch.
type LaunchFailureSignal string

// Signal implements os.Signal.
func (LaunchFailureSignal) Signal() {}

// String returns the sentence.
func (l LaunchFailureSignal) String() string { return string(l) }

const (
	// FinalTermTimeout is the time after a final TERM within which everything must have ended, two
	// thirds of Slurm's KillWait. The rest is for processes that do not die of KILL at once, and for
	// the file system. It is less for launchers with a shorter KillDelay.
	FinalTermTimeout = slurmKillDelay * 2 / 3
	slurmKillDelay   = 30 * time.Second
	// RepeatedSignalWindow is how long a further TERM counts as a repetition of the first: at a time
	// limit Slurm signals the step, and then the job.
	RepeatedSignalWindow = 2 * time.Second
	// pairingWindow is the maximum time between a TERM and a CONT that belong together.
	pairingWindow = time.Second
	// ambiguityWindow is how long the meaning of a second signal is open: two simultaneous signals
	// arrive in any order, and with a CONT it is not a repetition by the user.
	ambiguityWindow = 50 * time.Millisecond
)

// WithSignal returns the notices with one more signal.
func (n SignalHistory) WithSignal(sig syscall.Signal, at time.Time) SignalHistory {
	switch sig {
	case syscall.SIGCONT:
		n.lastCont = at
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGALRM:
		if !n.IsEnd(sig) {
			return n
		}
		if sig != syscall.SIGINT {
			n.lastTerm = at
		}
		if n.endSignal == 0 {
			n.endSignal, n.endRequestedAt = sig, at
		} else if n.repeatedAt.IsZero() && at.Sub(n.endRequestedAt) > RepeatedSignalWindow {
			n.repeatedAt = at
		}
	}
	paired := !n.lastTerm.IsZero() && !n.lastCont.IsZero() && n.lastTerm.Sub(n.lastCont).Abs() <= pairingWindow
	limit := sig == syscall.SIGALRM
	if isFinal := paired || limit || n.TermIsFinal && sig == syscall.SIGTERM; isFinal && n.finalTermAt.IsZero() {
		if n.repeatedAt.Equal(n.lastTerm) {
			n.repeatedAt = time.Time{} // a second signal of the scheduler, and not of a user
		}
		n.finalTermAt, n.endRequestedAt, n.ByLauncher = n.lastTerm, n.lastTerm, paired || limit
	}
	return n
}

// HasFinalTerm reports whether a TERM was final.
func (n SignalHistory) HasFinalTerm() bool { return !n.finalTermAt.IsZero() }

// GraceDeadlines returns the latest end of the driver's grace period and of everything else, or
// zero times if the grace periods have their full length. stop is the grace period of the services,
// which follows that of the driver; it is shortened in the same proportion as FinalTermTimeout.
func (n SignalHistory) GraceDeadlines(stop time.Duration) (driver, all time.Time) {
	if !n.finalTermAt.IsZero() {
		within := cmp.Or(n.KillDelay, slurmKillDelay) * 2 / 3
		all = n.finalTermAt.Add(within)
		driver = all.Add(-time.Duration(float64(stop) * float64(within) / float64(FinalTermTimeout)))
	}
	if n.repeatedAt.IsZero() {
		return driver, all
	}
	hurry := n.repeatedAt.Add(ambiguityWindow)
	if all.IsZero() || hurry.Before(driver) {
		driver = hurry
	}
	if all.IsZero() || hurry.Before(all) {
		all = hurry
	}
	return driver, all
}
