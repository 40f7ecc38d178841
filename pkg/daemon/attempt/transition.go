package attempt

import (
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// actionKind is a daemon's next action.
type actionKind int

const (
	actionBegin actionKind = iota // take part in the attempt; the head makes it
	// wait until the attempt is over: an earlier daemon of this node was in it
	actionAwait
	actionFinish // the launch has no other attempt
)

// nextMove is the next action, with its attempt.
type nextMove struct {
	actionKind
	attempt int
}

// attemptState is the state of the newest attempt.
type attemptState struct {
	newest    int // -1: there is none
	ended     bool
	next      int  // the attempt that follows, according to its result; 0: none
	succeeded bool // it has ended in order, with 0
	joined    bool // a daemon of this node has taken part
}

// chooseMove returns the action of a daemon that needs an attempt of at least floor. relaunches
// reports whether its launcher restarts daemons.
func chooseMove(s attemptState, floor int, relaunches bool) nextMove {
	switch {
	case s.newest < floor:
		return nextMove{actionBegin, floor}
	case !s.ended && !s.joined:
		return nextMove{actionBegin, s.newest}
	case !s.ended:
		return nextMove{actionAwait, s.newest}
	case s.next > s.newest || relaunches && !s.succeeded:
		return nextMove{actionBegin, s.newest + 1}
	default:
		return nextMove{actionFinish, s.newest}
	}
}

const (
	// maxBackoff is the maximum pause before an attempt.
	maxBackoff = time.Minute
	// stableRunTime is the time with an open gate after which earlier failures do not count any more.
	stableRunTime = 10 * time.Minute
)

// backoffPause returns the pause before an attempt, after row consecutive early failures.
func backoffPause(first time.Duration, row int) time.Duration {
	pause := first
	for ; row > 1 && pause < maxBackoff; row-- {
		pause *= 2
	}
	return min(pause, max(first, maxBackoff))
}

// hasSucceeded reports whether the run has ended in order, with 0.
func hasSucceeded(r *record.Result) bool { return r.Cause == nil && r.Code == 0 }
