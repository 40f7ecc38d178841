package signal

import "time"

// Pace determines the pauses between polls of a directory. They grow with the time waited so far.
type Pace struct {
	// MinPause is the shortest pause, with which a wait begins.
	MinPause time.Duration
	// MaxPause is the longest pause: the maximum delay of a change after an idle time.
	MaxPause time.Duration
	// Divisor determines the next pause: the time waited so far divided by Divisor, for example half
	// of it for 2. So a wait is at most that fraction too long, and the number of polls grows with the
	// logarithm of its length.
	Divisor int
}

const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
	// minPausePerNode is the time by which each node of the job extends the shortest pause: what all
	// nodes wait for takes at least a few calls of each node, and a server of thousands of clients
	// answers about ten thousand calls a second.
	minPausePerNode = 250 * time.Microsecond
	// maxPausePerNode is the time by which each node extends the longest pause while a job comes up:
	// all nodes together then make a thousand polls a second.
	maxPausePerNode = time.Millisecond
)

// HeadPace is the pace of the head, which polls for all nodes. Polling faster at first makes a
// bring-up slower, because the polls delay the records.
var HeadPace = Pace{MinPause: minPause, MaxPause: maxPause / 4, Divisor: 8}

// WorkerPace returns the pace of each of size nodes that wait for the same record. The more nodes
// there are, the less often each of them polls.
func WorkerPace(size int) Pace {
	n := time.Duration(size)
	return Pace{MinPause: max(minPause, n*minPausePerNode), MaxPause: max(maxPause, n*maxPausePerNode), Divisor: 2}
}

// nextPause returns the pause until the next poll. The parameter took is the duration of the last
// poll, and waited the time waited so far. The pause is at least as long as the last poll, so that
// a slow file system is not slowed down further. Then jitter, at least 0 and less than 1, shortens
// the pause by up to a quarter, so that a thousand daemons do not poll at once.
func (p Pace) nextPause(waited, took time.Duration, jitter float64) time.Duration {
	pause := min(max(p.MinPause, waited/time.Duration(p.Divisor), took), p.MaxPause)
	return pause - time.Duration(jitter/4*float64(pause))
}
