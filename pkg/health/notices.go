package health

import (
	"syscall"
	"time"
)

// Notices are the signals that a daemon has got so far, and what they ask of
// it.
//
// Where Slurm ends a step (scancel, a time limit, a preemption) it sends CONT
// and TERM, and KILL after KillWait: such a TERM is final, and all must be over
// by then. Its warning (--signal=TERM@120) looks the same, and is taken for the
// end. A TERM that comes alone is early, from a person or another launcher: no
// KILL is known to follow, and the graces may be as long as they were made.
type Notices struct {
	end   syscall.Signal // what ends the run; 0 where nothing has
	heard time.Time      // when the end was asked for; a final TERM counts anew
	again time.Time      // when it was asked for once more; zero: never
	final time.Time      // of the first final TERM; zero: there was none

	term, cont time.Time // the newest of each
}

// LaunchFailed is told a daemon among its signals, by a launcher that has failed to start the others: why, in a
// sentence. The run has then ended, as by a wrong launch.
type LaunchFailed string

// Signal makes it an os.Signal.
func (LaunchFailed) Signal() {}

// String returns the sentence.
func (l LaunchFailed) String() string { return string(l) }

const (
	// EndTime is how long after a final TERM all must be over. Slurm's KillWait
	// is 30 s; the rest is for what doesn't die of KILL at once, and for the
	// share.
	EndTime = 20 * time.Second
	// EchoTime is how long a further TERM is an echo of the first and no second
	// thought: at a time limit Slurm signals the step, and then the job.
	EchoTime = 2 * time.Second
	// together is how far a TERM and a CONT that belong together may be apart.
	together = time.Second
	// doubt is how long a second signal is in doubt: two that are there at the
	// same time are told in any order, and with a CONT it is no second thought.
	doubt = 50 * time.Millisecond
)

// With returns the notices with one more.
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
			n.again = time.Time{} // the scheduler's second word, and nobody's impatience
		}
		n.final, n.heard = n.term, n.term
	}
	return n
}

// Final tells whether a TERM was final.
func (n Notices) Final() bool { return !n.final.IsZero() }

// Limits returns when the driver's grace and when all others end at the latest;
// zero where they have the time that they were made for. The services have stop
// after the driver.
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
