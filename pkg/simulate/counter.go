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

// counter counts the calls of all daemons by rank and kind, and by when they
// were made. Its methods may be called from any goroutine.
type counter struct {
	began time.Time
	kinds []string
	calls []atomic.Int64 // by rank, and then by kind
	bins  []atomic.Int64 // since began, of binWidth each; the last one takes what comes later
}

// newCounter counts for a time that is not expected to be longer than within.
func newCounter(nodes int, within time.Duration) *counter {
	c := &counter{bins: make([]atomic.Int64, within/binWidth+1)}
	for _, op := range signal.Ops() {
		c.kinds = append(c.kinds, op.String())
	}
	c.calls = make([]atomic.Int64, nodes*len(c.kinds))
	return c
}

// told is a meter's Told for a rank.
func (c *counter) told(rank int) func(signal.Op) {
	own := c.of(rank)
	return func(op signal.Op) {
		own[op].Add(1)
		c.bins[c.bin(time.Since(c.began))].Add(1)
	}
}

func (c *counter) bin(at time.Duration) int { return min(int(at/binWidth), len(c.bins)-1) }

func (c *counter) of(rank int) []atomic.Int64 {
	return c.calls[rank*len(c.kinds) : (rank+1)*len(c.kinds)]
}

// peak returns the most calls a second from one time after the start to another.
func (c *counter) peak(from, to time.Duration) int64 {
	bins := c.bins[c.bin(from) : c.bin(to)+1]
	counts := make([]int64, len(bins))
	for i := range bins {
		counts[i] = bins[i].Load()
	}
	return peakOf(counts, int(peakWidth/binWidth), int(time.Second/binWidth))
}

// count is the calls of one daemon so far, by kind.
type count []int64

func (c *counter) now(rank int) count {
	own := c.of(rank)
	now := make(count, len(own))
	for i := range own {
		now[i] = own[i].Load()
	}
	return now
}

// all returns the counts of all ranks.
func (c *counter) all() []count {
	counts := make([]count, len(c.calls)/len(c.kinds))
	for rank := range counts {
		counts[rank] = c.now(rank)
	}
	return counts
}

func (c count) sum() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// tally is one count with its kinds' names.
func (c *counter) tally(counts ...count) Tally {
	t := Tally{ByKind: make(map[string]int64)}
	for _, one := range counts {
		for kind, n := range one {
			if n > 0 {
				t.ByKind[c.kinds[kind]] += n
				t.Calls += n
			}
		}
	}
	return t
}

// spread tells how counts differ.
func (c *counter) spread(counts []count) Calls {
	var calls Calls
	if len(counts) == 0 {
		return calls
	}
	sums := make([]int64, 0, len(counts))
	for _, one := range counts {
		sums = append(sums, one.sum())
	}
	calls.Calls = spreadOf(sums)
	calls.ByKind = make(map[string]Spread[int64])
	for kind, name := range c.kinds {
		sums = sums[:0]
		for _, one := range counts {
			sums = append(sums, one[kind])
		}
		if s := spreadOf(sums); s.Max > 0 {
			calls.ByKind[name] = s
		}
	}
	return calls
}
