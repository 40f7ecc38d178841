package simulate

import (
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// binWidth is the resolution with which the times of calls are counted.
	binWidth = 10 * time.Millisecond
	// peakWidth is the window over which a peak of calls is computed.
	peakWidth = 100 * time.Millisecond
)

// clock counts when the calls of all daemons are made. Its methods may be called from any
// goroutine.
type clock struct {
	began time.Time
	bins  []atomic.Int64 // calls per binWidth since began; the last one also counts later calls
}

// newClock returns a clock for a run that is expected to be no longer than the given time.
func newClock(within time.Duration) *clock {
	return &clock{bins: make([]atomic.Int64, within/binWidth+1)}
}

// elapsed returns the time since the daemons started.
func (c *clock) elapsed() time.Duration { return time.Since(c.began) }

// called counts one call.
func (c *clock) called() { c.bins[c.bin(c.elapsed())].Add(1) }

// bin returns the index of the bin for a time since the start.
func (c *clock) bin(at time.Duration) int { return min(int(at/binWidth), len(c.bins)-1) }

// peak returns the maximum number of calls per second between two times, which are counted from the
// start.
func (c *clock) peak(from, to time.Duration) int64 {
	bins := c.bins[c.bin(from) : c.bin(to)+1]
	counts := make([]int64, len(bins))
	for i := range bins {
		counts[i] = bins[i].Load()
	}
	return peakOf(counts, int(peakWidth/binWidth), int(time.Second/binWidth))
}

// count has the calls of one daemon so far, by kind.
type count []signal.OpStats

// sum returns the number of calls of all kinds.
func (c count) sum() (sum int64) {
	for _, kind := range c {
		sum += kind.Calls
	}
	return sum
}

// tally returns the sum of counts.
func tally(counts ...count) Tally {
	t := Tally{ByKind: make(map[string]int64)}
	for _, one := range counts {
		for _, kind := range one {
			t.ByKind[kind.Op.String()] += kind.Calls
			t.Calls += kind.Calls
		}
	}
	return t
}

// less returns the difference between a tally and an earlier one. It changes the map of the tally.
func (t Tally) less(earlier Tally) Tally {
	t.Calls -= earlier.Calls
	for kind, n := range earlier.ByKind {
		t.ByKind[kind] -= n
	}
	return t
}

// differing returns the distribution of the counts of several nodes.
func differing(counts []count) Calls {
	if len(counts) == 0 {
		return Calls{}
	}
	// Collect the total and the calls of each kind, with 0 for nodes without calls of a kind.
	sums, kinds := make([]int64, len(counts)), make(map[string][]int64)
	for i, one := range counts {
		sums[i] = one.sum()
		for _, kind := range one {
			name := kind.Op.String()
			if kinds[name] == nil {
				kinds[name] = make([]int64, len(counts))
			}
			kinds[name][i] = kind.Calls
		}
	}
	calls := Calls{Calls: spreadOf(sums), ByKind: make(map[string]Spread[int64])}
	for name, each := range kinds {
		calls.ByKind[name] = spreadOf(each)
	}
	return calls
}
