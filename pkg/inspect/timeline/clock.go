package timeline

import "time"

// Clock is the offset of a node's wall clock from the head's.
type Clock struct {
	// Known reports that the offset is bounded on both sides. Otherwise Offset is 0, or the smallest
	// correction after which no record is read before it was written.
	Known bool
	// Offset is positive if the node's clock is ahead. It is the midpoint of the possible offsets, and
	// Residual is half the width of their interval: the true offset differs from Offset by at most
	// Residual.
	Offset, Residual time.Duration
}

// ToHeadTime converts a time of the node's clock to the head's clock. It returns the time unchanged
// if it or the result is implausible.
func (c Clock) ToHeadTime(at time.Time) time.Time {
	if on := at.Add(-c.Offset); isPlausibleTime(at) && isPlausibleTime(on) {
		return on
	}
	return at
}

// clockExchange is a record that one side has written and the other has read, each with a time of
// its own clock. A record is written before it is read, so each exchange bounds the clock offset on
// one side.
type clockExchange struct {
	writtenAt, readAt time.Time
	// fromNode reports that the node wrote and the head read; otherwise the head wrote.
	fromNode bool
}

// estimateOffset estimates from their exchanges how far the node's clock is ahead of the head's.
// sameHost reports that both seem to run on one machine, which has one clock; this is assumed
// unless an exchange contradicts it.
//
// Contradictory exchanges mean that a clock was set in the meantime. The offset then lies between
// the two bounds, and the residual covers both.
func estimateOffset(exchanges []clockExchange, sameHost bool) Clock {
	var lower, upper time.Duration // bounds of the possible offsets
	var above, below bool          // whether upper and lower are known
	// Narrow the bounds by each exchange.
	for _, x := range exchanges {
		if !isPlausibleTime(x.writtenAt) || !isPlausibleTime(x.readAt) {
			continue
		}
		gap := x.readAt.Sub(x.writtenAt) // apparent delay: the real delay, plus or minus the offset
		switch {
		case x.fromNode && (!below || -gap > lower):
			lower, below = -gap, true
		case !x.fromNode && (!above || gap < upper):
			upper, above = gap, true
		}
	}
	// The offset 0 of a shared machine is possible unless a bound excludes it.
	possible := (!below || lower <= 0) && (!above || upper >= 0)
	switch {
	case sameHost && possible:
		return Clock{Known: true}
	case below && above:
		half := (upper - lower) / 2
		return Clock{Known: true, Offset: lower + half, Residual: half.Abs()}
	case below:
		return Clock{Offset: max(0, lower)}
	case above:
		return Clock{Offset: min(0, upper)}
	default:
		return Clock{}
	}
}
