package health

import (
	"syscall"
	"time"
)

// SignalHistory are the signals that a daemon has received so far, and their meaning.
//
// When Slurm ends a step (scancel, a time limit, a preemption) it sends CONT and TERM, and KILL
// after KillWait: such a TERM is final, and everything must have ended by then. Its warning
// (--signal=TERM@120) looks the same, and is handled as the end. A TERM alone is early, from a user
// or another launcher: no KILL is known to follow, and the grace periods may have their full
// length.
type SignalHistory struct {
	endSignal      syscall.Signal // the signal that ends the run; 0 if there is none
	endRequestedAt time.Time      // when the end was requested; a final TERM restarts it
	repeatedAt     time.Time      // when it was requested again; zero: never
	finalTermAt    time.Time      // time of the first final TERM; zero: there was none

	lastTerm, lastCont time.Time // the newest of each
}

// LaunchFailureSignal is sent to a daemon as a signal, by a launcher that has failed to start the
// others, with the reason as a sentence. The run then ends like a wrong launch.
type LaunchFailureSignal string

// Signal implements os.Signal.
func (LaunchFailureSignal) Signal() {}

// String returns the sentence.
func (l LaunchFailureSignal) String() string { return string(l) }

const (
	// FinalTermTimeout is the time after a final TERM within which everything must have ended. Slurm's
	// KillWait is 30 s; the rest is for processes that do not die of KILL at once, and for the file
	// system.
	FinalTermTimeout = 20 * time.Second
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
	case syscall.SIGTERM, syscall.SIGINT:
		if sig == syscall.SIGTERM {
			n.lastTerm = at
		}
		if n.endSignal == 0 {
			n.endSignal, n.endRequestedAt = sig, at
		} else if n.repeatedAt.IsZero() && at.Sub(n.endRequestedAt) > RepeatedSignalWindow {
			n.repeatedAt = at
		}
	}
	paired := !n.lastTerm.IsZero() && !n.lastCont.IsZero() && n.lastTerm.Sub(n.lastCont).Abs() <= pairingWindow
	if paired && n.finalTermAt.IsZero() {
		if n.repeatedAt.Equal(n.lastTerm) {
			n.repeatedAt = time.Time{} // a second signal of the scheduler, and not of a user
		}
		n.finalTermAt, n.endRequestedAt = n.lastTerm, n.lastTerm
	}
	return n
}

// HasFinalTerm reports whether a TERM was final.
func (n SignalHistory) HasFinalTerm() bool { return !n.finalTermAt.IsZero() }

// GraceDeadlines returns the latest end of the driver's grace period and of everything else, or
// zero times if the grace periods have their full length. stop is the grace period of the services,
// which follows that of the driver.
func (n SignalHistory) GraceDeadlines(stop time.Duration) (driver, all time.Time) {
	if !n.finalTermAt.IsZero() {
		all = n.finalTermAt.Add(FinalTermTimeout)
		driver = all.Add(-stop)
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
