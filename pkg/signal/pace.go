package signal

import "time"

// Pace determines the pauses between polls of a directory. They grow with the time waited so far.
type Pace struct {
	// Fast is the shortest pause, with which a wait begins.
	Fast time.Duration
	// Steady is the longest pause: the maximum delay of a change after an idle time.
	Steady time.Duration
	// Part determines the next pause: the time waited so far divided by Part, for example half of it
	// for 2. So a wait is at most that fraction too long, and the number of polls grows with the
	// logarithm of its length.
	Part int
}

const (
	fast   = 5 * time.Millisecond
	steady = time.Second
	// firstLook is the time by which each node of the job extends the shortest pause: what all nodes
	// wait for takes at least a few calls of each node, and a server of thousands of clients answers
	// about ten thousand calls a second.
	firstLook = 250 * time.Microsecond
	// steadyLook is the time by which each node extends the longest pause while a job comes up: all
	// nodes together then make a thousand polls a second.
	steadyLook = time.Millisecond
)

// HeadPace is the pace of the head, which polls for all nodes. Polling faster at first makes a
// bring-up slower, because the polls delay the records.
var HeadPace = Pace{Fast: fast, Steady: steady / 4, Part: 8}

// WorkerPace returns the pace of each of size nodes that wait for the same record. The more nodes
// there are, the less often each of them polls.
func WorkerPace(size int) Pace {
	n := time.Duration(size)
	return Pace{Fast: max(fast, n*firstLook), Steady: max(steady, n*steadyLook), Part: 2}
}

// next returns the pause until the next poll. The parameter look is the duration of the last poll,
// and waited the time waited so far. The pause is at least as long as the last poll, so that a slow
// file system is not slowed down further. Then jitter, at least 0 and less than 1, shortens the
// pause by up to a quarter, so that a thousand daemons do not poll at once.
func (p Pace) next(waited, look time.Duration, jitter float64) time.Duration {
	pause := min(max(p.Fast, waited/time.Duration(p.Part), look), p.Steady)
	return pause - time.Duration(jitter/4*float64(pause))
}
