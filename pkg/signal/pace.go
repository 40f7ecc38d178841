package signal

import (
	"math/rand/v2"
	"time"
)

// Pace says how often a directory is looked at.
type Pace struct {
	// Fast is the pause before the first look of a wait.
	Fast time.Duration
	// Steady is the longest pause: how late a change may be seen once
	// nothing has happened for a while.
	Steady time.Duration
}

// DefaultPace is one node's: it sees a change of the first milliseconds within
// milliseconds, and settles at a look a second. Looking faster at first makes a
// bring-up slower: the looks of all nodes are in the way of what they look for.
var DefaultPace = Pace{Fast: 5 * time.Millisecond, Steady: time.Second}

const (
	// firstLook is what a node adds to the first pause of all: what they wait
	// for takes at least a few calls of each, and a server that answers for
	// thousands does tens of thousands of calls a second.
	firstLook = 250 * time.Microsecond
	// steadyLook is what a node adds to the longest pause while a job comes up:
	// a thousand looks a second, all nodes together.
	steadyLook = time.Millisecond
)

// PaceFor is the pace of each of size nodes that wait for the same: many nodes
// must not look as often as few.
func PaceFor(size int) Pace {
	n := time.Duration(size)
	return Pace{
		Fast:   max(DefaultPace.Fast, n*firstLook),
		Steady: max(DefaultPace.Steady, n*steadyLook),
	}
}

// next returns the pause until the next look: half of the time waited so far,
// so that a wait costs a number of looks that grows with the logarithm of its
// length; never under the time a look takes, so that a slow share is not made
// slower by us, and never over Steady. At random it is up to a quarter less,
// or a thousand daemons would look at once.
func (p Pace) next(waited, look time.Duration) time.Duration {
	pause := min(max(p.Fast, waited/2, 2*look), p.Steady)
	return pause - time.Duration(rand.Float64()/4*float64(pause))
}
