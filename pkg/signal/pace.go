package signal

import (
	"math/rand/v2"
	"time"
)

// Pace says how often a directory is looked at.
type Pace struct {
	// Fast is the pause after the first look of a wait.
	Fast time.Duration
	// Steady is the longest pause: how late a change may be seen once
	// nothing has happened for a while.
	Steady time.Duration
}

// DefaultPace sees a change of the first milliseconds within milliseconds, and
// settles at a look a second. Looking faster at first makes a bring-up slower:
// the looks of all nodes are in the way of what they look for.
var DefaultPace = Pace{Fast: 5 * time.Millisecond, Steady: time.Second}

// next returns the pause until the next look: a quarter of the time waited so
// far, so that a wait is lengthened by a quarter at most and costs a number of
// looks that grows with the logarithm of its length; never under the time a
// look takes, so that a slow share is not made slower by us, and never over
// Steady. At random it is up to a quarter less, or a thousand daemons would
// look at once.
func (p Pace) next(waited, look time.Duration) time.Duration {
	pause := min(max(p.Fast, waited/4, 2*look), p.Steady)
	return pause - time.Duration(rand.Float64()/4*float64(pause))
}
