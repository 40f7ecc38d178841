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

// callClock counts when the calls of all daemons are made. Its methods may be called from any
// goroutine.
type callClock struct {
	began time.Time
	bins  []atomic.Int64 // calls per binWidth since began; the last one also counts later calls
}

// newCallClock returns a clock for a run that is expected to be no longer than the given time.
func newCallClock(within time.Duration) *callClock {
	return &callClock{bins: make([]atomic.Int64, within/binWidth+1)}
}

// sinceStart returns the time since the daemons started.
func (c *callClock) sinceStart() time.Duration { return time.Since(c.began) }

// countCall counts one call.
func (c *callClock) countCall() { c.bins[c.binIndex(c.sinceStart())].Add(1) }

// binIndex returns the index of the bin for a time since the start.
func (c *callClock) binIndex(at time.Duration) int { return min(int(at/binWidth), len(c.bins)-1) }

// peakRate returns the maximum number of calls per second between two times, which are counted from
// the start.
func (c *callClock) peakRate(from, to time.Duration) int64 {
	bins := c.bins[c.binIndex(from) : c.binIndex(to)+1]
	counts := make([]int64, len(bins))
	for i := range bins {
		counts[i] = bins[i].Load()
	}
	return maxWindowRate(counts, int(peakWidth/binWidth), int(time.Second/binWidth))
}

// callCounts has the calls of one daemon so far, by kind.
type callCounts []signal.OpStats

// totalCalls returns the number of calls of all kinds.
func (c callCounts) totalCalls() (sum int64) {
	for _, kind := range c {
		sum += kind.Calls
	}
	return sum
}

// sumCounts returns the sum of counts.
func sumCounts(counts ...callCounts) CallTotals {
	t := CallTotals{ByKind: make(map[string]int64)}
	for _, one := range counts {
		for _, kind := range one {
			t.ByKind[kind.Op.String()] += kind.Calls
			t.Calls += kind.Calls
		}
	}
	return t
}

// subtract returns the difference between a tally and an earlier one. It changes the map of the
// tally.
func (t CallTotals) subtract(earlier CallTotals) CallTotals {
	t.Calls -= earlier.Calls
	for kind, n := range earlier.ByKind {
		t.ByKind[kind] -= n
	}
	return t
}

// callDistribution returns the distribution of the counts of several nodes.
func callDistribution(counts []callCounts) CallDistribution {
	if len(counts) == 0 {
		return CallDistribution{}
	}
	// Collect the total and the calls of each kind, with 0 for nodes without calls of a kind.
	sums, kinds := make([]int64, len(counts)), make(map[string][]int64)
	for i, one := range counts {
		sums[i] = one.totalCalls()
		for _, kind := range one {
			name := kind.Op.String()
			if kinds[name] == nil {
				kinds[name] = make([]int64, len(counts))
			}
			kinds[name][i] = kind.Calls
		}
	}
	calls := CallDistribution{Calls: percentilesOf(sums), ByKind: make(map[string]Percentiles[int64])}
	for name, each := range kinds {
		calls.ByKind[name] = percentilesOf(each)
	}
	return calls
}
