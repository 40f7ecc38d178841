package signal

import "time"

// Pace says how often a directory is looked at.
type Pace struct {
	// Fast is the shortest pause, with which a wait begins.
	Fast time.Duration
	// Steady is the longest pause: how late a change may be seen once
	// nothing has happened for a while.
	Steady time.Duration
	// Part says which part of the time waited so far a pause is, as 2 for the
	// half: a wait is lengthened by that part at most, and costs a number of
	// looks that grows with the logarithm of its length.
	Part int
}

const (
	fast   = 5 * time.Millisecond
	steady = time.Second
	// firstLook is what a node adds to the shortest pause: what many wait for
	// takes at least a few calls of each, and a server that answers for
	// thousands does some ten thousand calls a second.
	firstLook = 250 * time.Microsecond
	// steadyLook is what a node adds to the longest pause while a job comes up:
	// a thousand looks a second, all nodes together.
	steadyLook = time.Millisecond
)

// HeadPace is that of one for all. Looking faster at first makes a bring-up
// slower: the looks are in the way of what they look for.
var HeadPace = Pace{Fast: fast, Steady: steady / 4, Part: 8}

// WorkerPace is that of each of size nodes that wait for the same: many must
// not look as often as few.
func WorkerPace(size int) Pace {
	n := time.Duration(size)
	return Pace{Fast: max(fast, n*firstLook), Steady: max(steady, n*steadyLook), Part: 2}
}

// next returns the pause until the next look after one that took so long: never
// under the time a look takes, so that a slow share is not made slower by us. By jitter, which is at least 0 and less than 1, it is up to a quarter
// less, or a thousand daemons would look at once.
func (p Pace) next(waited, look time.Duration, jitter float64) time.Duration {
	pause := min(max(p.Fast, waited/time.Duration(p.Part), look), p.Steady)
	return pause - time.Duration(jitter/4*float64(pause))
}
