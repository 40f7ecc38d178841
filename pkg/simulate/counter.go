package simulate

import (
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// binWidth is how finely it is told when calls were made.
	binWidth = 10 * time.Millisecond
	// peakWidth is the time over which a peak of calls is taken.
	peakWidth = 100 * time.Millisecond
)

// clock tells when the calls of all daemons were made. Its methods may be called
// from any goroutine.
type clock struct {
	began time.Time
	bins  []atomic.Int64 // since began, of binWidth each; the last one takes what comes later
}

// newClock counts for a time that is not expected to be longer than within.
func newClock(within time.Duration) *clock {
	return &clock{bins: make([]atomic.Int64, within/binWidth+1)}
}

// elapsed is how long ago the daemons started.
func (c *clock) elapsed() time.Duration { return time.Since(c.began) }

// called notes one call.
func (c *clock) called() { c.bins[c.bin(c.elapsed())].Add(1) }

func (c *clock) bin(at time.Duration) int { return min(int(at/binWidth), len(c.bins)-1) }

// peak returns the most calls a second from one time after the start to another.
func (c *clock) peak(from, to time.Duration) int64 {
	bins := c.bins[c.bin(from) : c.bin(to)+1]
	counts := make([]int64, len(bins))
	for i := range bins {
		counts[i] = bins[i].Load()
	}
	return peakOf(counts, int(peakWidth/binWidth), int(time.Second/binWidth))
}

// count is the calls of one daemon so far, by kind.
type count []signal.OpStats

func (c count) sum() (sum int64) {
	for _, kind := range c {
		sum += kind.Calls
	}
	return sum
}

// tally adds up counts.
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

// less is what a tally has more than an earlier one.
func (t Tally) less(earlier Tally) Tally {
	t.Calls -= earlier.Calls
	for kind, n := range earlier.ByKind {
		t.ByKind[kind] -= n
	}
	return t
}

// differing tells how counts differ.
func differing(counts []count) Calls {
	if len(counts) == 0 {
		return Calls{}
	}
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
