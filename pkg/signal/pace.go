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
	// firstLook is by how much each node of the job lengthens the shortest pause:
	// what all wait for takes at least a few calls of each node, and a server of
	// thousands of clients answers some ten thousand calls a second.
	firstLook = 250 * time.Microsecond
	// steadyLook is by how much it lengthens the longest pause while a job comes
	// up: all nodes together then make a thousand looks a second.
	steadyLook = time.Millisecond
)

// HeadPace is that of the head, which looks for all. Looking faster at first
// makes a bring-up slower: the looks delay what they look for.
var HeadPace = Pace{Fast: fast, Steady: steady / 4, Part: 8}

// WorkerPace is that of each of size nodes that wait for the same: many must
// not look as often as few.
func WorkerPace(size int) Pace {
	n := time.Duration(size)
	return Pace{Fast: max(fast, n*firstLook), Steady: max(steady, n*steadyLook), Part: 2}
}

// next returns the pause until the next look, after one that took so long. It is
// as long as that look at least, so that a slow share is not made slower by us,
// but for jitter: of 0 to less than 1, it shortens the pause by up to a quarter,
// so that a thousand daemons do not look at once.
func (p Pace) next(waited, look time.Duration, jitter float64) time.Duration {
	pause := min(max(p.Fast, waited/time.Duration(p.Part), look), p.Steady)
	return pause - time.Duration(jitter/4*float64(pause))
}
