package attempt

import (
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// doing is what a daemon does next.
type doing int

const (
	begin  doing = iota // the attempt: the head makes it, the others take part
	await               // until the attempt is over: an earlier daemon of this rank was in it
	finish              // the launch has no other attempt
)

// move is what comes next, and with which attempt.
type move struct {
	doing
	attempt int
}

// seen is what a look at the newest attempt says.
type seen struct {
	newest int // -1: there is none
	over   bool
	next   int  // the attempt that follows by its result; 0: none
	well   bool // it has ended in order, with 0
	joined bool // a daemon of this rank has taken part
}

// choose is what a daemon does that looks for an attempt of at least floor, where its
// launcher starts daemons anew or not.
func choose(s seen, floor int, relaunches bool) move {
	switch {
	case s.newest < floor:
		return move{begin, floor}
	case !s.over && !s.joined:
		return move{begin, s.newest}
	case !s.over:
		return move{await, s.newest}
	case s.next > s.newest || relaunches && !s.well:
		return move{begin, s.newest + 1}
	default:
		return move{finish, s.newest}
	}
}

const (
	// longestBackoff bounds the pause before an attempt.
	longestBackoff = time.Minute
	// long is for how long the gate was open where the failures before count no more.
	long = 10 * time.Minute
)

// backoff is the pause before an attempt, after so many in a row that have failed soon.
func backoff(first time.Duration, row int) time.Duration {
	pause := first
	for ; row > 1 && pause < longestBackoff; row-- {
		pause *= 2
	}
	return min(pause, max(first, longestBackoff))
}

// wellDone tells whether the run has ended in order, with 0.
func wellDone(r *signal.Result) bool { return r.Cause == nil && r.Code == 0 }
