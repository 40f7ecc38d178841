package attempt

import (
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// doing is a daemon's next action.
type doing int

const (
	begin  doing = iota // take part in the attempt; the head makes it
	await               // wait until the attempt is over: an earlier daemon of this node was in it
	finish              // the launch has no other attempt
)

// move is the next action, with its attempt.
type move struct {
	doing
	attempt int
}

// seen is the state of the newest attempt.
type seen struct {
	newest int // -1: there is none
	over   bool
	next   int  // the attempt that follows, according to its result; 0: none
	well   bool // it has ended in order, with 0
	joined bool // a daemon of this node has taken part
}

// choose returns the action of a daemon that needs an attempt of at least floor. relaunches reports
// whether its launcher restarts daemons.
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
	// longestBackoff is the maximum pause before an attempt.
	longestBackoff = time.Minute
	// long is the time with an open gate after which earlier failures do not count any more.
	long = 10 * time.Minute
)

// backoff returns the pause before an attempt, after row consecutive early failures.
func backoff(first time.Duration, row int) time.Duration {
	pause := first
	for ; row > 1 && pause < longestBackoff; row-- {
		pause *= 2
	}
	return min(pause, max(first, longestBackoff))
}

// wellDone reports whether the run has ended in order, with 0.
func wellDone(r *signal.Result) bool { return r.Cause == nil && r.Code == 0 }
