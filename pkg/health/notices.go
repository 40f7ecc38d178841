package health

import (
	"syscall"
	"time"
)

// Notices are the signals that a daemon has received so far, and their meaning.
//
// When Slurm ends a step (scancel, a time limit, a preemption) it sends CONT and TERM, and KILL
// after KillWait: such a TERM is final, and everything must have ended by then. Its warning
// (--signal=TERM@120) looks the same, and is handled as the end. A TERM alone is early, from a user
// or another launcher: no KILL is known to follow, and the grace periods may have their full
// length.
type Notices struct {
	end   syscall.Signal // the signal that ends the run; 0 if there is none
	heard time.Time      // when the end was requested; a final TERM restarts it
	again time.Time      // when it was requested again; zero: never
	final time.Time      // time of the first final TERM; zero: there was none

	term, cont time.Time // the newest of each
}

// LaunchFailed is sent to a daemon as a signal, by a launcher that has failed to start the others,
// with the reason as a sentence. The run then ends like a wrong launch.
type LaunchFailed string

// Signal implements os.Signal.
func (LaunchFailed) Signal() {}

// String returns the sentence.
func (l LaunchFailed) String() string { return string(l) }

const (
	// EndTime is the time after a final TERM within which everything must have ended. Slurm's KillWait
	// is 30 s; the rest is for processes that do not die of KILL at once, and for the file system.
	EndTime = 20 * time.Second
	// EchoTime is how long a further TERM counts as a repetition of the first: at a time limit Slurm
	// signals the step, and then the job.
	EchoTime = 2 * time.Second
	// together is the maximum time between a TERM and a CONT that belong together.
	together = time.Second
	// doubt is how long the meaning of a second signal is open: two simultaneous signals arrive in any
	// order, and with a CONT it is not a repetition by the user.
	doubt = 50 * time.Millisecond
)

// With returns the notices with one more signal.
func (n Notices) With(sig syscall.Signal, at time.Time) Notices {
	switch sig {
	case syscall.SIGCONT:
		n.cont = at
	case syscall.SIGTERM, syscall.SIGINT:
		if sig == syscall.SIGTERM {
			n.term = at
		}
		if n.end == 0 {
			n.end, n.heard = sig, at
		} else if n.again.IsZero() && at.Sub(n.heard) > EchoTime {
			n.again = at
		}
	}
	paired := !n.term.IsZero() && !n.cont.IsZero() && n.term.Sub(n.cont).Abs() <= together
	if paired && n.final.IsZero() {
		if n.again.Equal(n.term) {
			n.again = time.Time{} // a second signal of the scheduler, and not of a user
		}
		n.final, n.heard = n.term, n.term
	}
	return n
}

// Final reports whether a TERM was final.
func (n Notices) Final() bool { return !n.final.IsZero() }

// Limits returns the latest end of the driver's grace period and of everything else, or zero times
// if the grace periods have their full length. stop is the grace period of the services, which
// follows that of the driver.
func (n Notices) Limits(stop time.Duration) (driver, all time.Time) {
	if !n.final.IsZero() {
		all = n.final.Add(EndTime)
		driver = all.Add(-stop)
	}
	if n.again.IsZero() {
		return driver, all
	}
	hurry := n.again.Add(doubt)
	if all.IsZero() || hurry.Before(driver) {
		driver = hurry
	}
	if all.IsZero() || hurry.Before(all) {
		all = hurry
	}
	return driver, all
}
