package timeline

import "time"

// Clock is how far a node's wall clock is ahead of the head's.
type Clock struct {
	// Known says that both sides are bounded: where it is not, Offset is 0, or
	// the least that lets nothing be seen before it was written.
	Known bool
	// Offset is the middle of all offsets that are possible, and Residual half
	// of their width: the true one is not farther away.
	Offset, Residual time.Duration
}

// Correct returns what the head's clock showed when the node's showed at.
func (c Clock) Correct(at time.Time) time.Time {
	if on := at.Add(-c.Offset); believable(at) && believable(on) {
		return on
	}
	return at
}

// exchange is something that one side has written and the other has seen, each
// by its own clock. What was seen was written before: that alone bounds how far
// the clocks can be apart.
type exchange struct {
	wrote, saw time.Time
	// byNode says that the node wrote and the head saw; otherwise the head wrote.
	byNode bool
}

// reckon returns how far the node's clock is ahead of the head's, by all that
// they have exchanged. sameHost says that both are thought to be on one machine,
// which has one clock: that is believed where nothing speaks against it.
//
// Exchanges that contradict each other tell that a clock was set meanwhile: then
// the offset lies between them, and the residual covers both.
func reckon(exchanges []exchange, sameHost bool) Clock {
	var least, most time.Duration // possible offsets
	var above, below bool         // which of them are known
	for _, x := range exchanges {
		if !believable(x.wrote) || !believable(x.saw) {
			continue
		}
		gap := x.saw.Sub(x.wrote) // as it seems: the way, and the offset with one sign or the other
		switch {
		case x.byNode && (!below || -gap > least):
			least, below = -gap, true
		case !x.byNode && (!above || gap < most):
			most, above = gap, true
		}
	}
	possible := (!below || least <= 0) && (!above || most >= 0)
	switch {
	case sameHost && possible:
		return Clock{Known: true}
	case below && above:
		half := (most - least) / 2
		return Clock{Known: true, Offset: least + half, Residual: half.Abs()}
	case below:
		return Clock{Offset: max(0, least)}
	case above:
		return Clock{Offset: min(0, most)}
	default:
		return Clock{}
	}
}
