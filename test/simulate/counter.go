package simulate

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// binWidth is the resolution with which the times of calls are counted.
	binWidth = 10 * time.Millisecond
	// peakBins is the number of bins over which a peak of calls is computed: a tenth of a second.
	peakBins = 10
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

// peakRate returns the maximum number of calls per second until a time since the start.
func (c *callClock) peakRate(until time.Duration) (peak int64) {
	var sum int64
	for i := range c.bins[:c.binIndex(until)+1] {
		sum += c.bins[i].Load()
		if i >= peakBins {
			sum -= c.bins[i-peakBins].Load()
		}
		peak = max(peak, sum)
	}
	return peak * int64(time.Second/binWidth) / peakBins
}

// callCounts has the calls of one daemon so far, by kind.
type callCounts []signal.OpStats

// count returns the number of calls of one kind; of all kinds if it is empty.
func (c callCounts) count(kind string) (sum int64) {
	for _, op := range c {
		if kind == "" || string(op.Op) == kind {
			sum += op.Calls
		}
	}
	return sum
}

// sumCounts returns the sum of counts.
func sumCounts(counts ...callCounts) CallTotals {
	t := CallTotals{ByKind: make(map[string]int64)}
	for _, one := range counts {
		for _, kind := range one {
			t.ByKind[string(kind.Op)] += kind.Calls
			t.Calls += kind.Calls
		}
	}
	return t
}

// subtract returns the difference to earlier totals. It changes the map of the receiver.
func (t CallTotals) subtract(earlier CallTotals) CallTotals {
	t.Calls -= earlier.Calls
	for kind, n := range earlier.ByKind {
		t.ByKind[kind] -= n
	}
	return t
}

// distribution returns the distribution of the counts of several nodes of one kind, or of all kinds
// if it is empty.
func distribution(counts []callCounts, kind string) Percentiles[int64] {
	var sums []int64
	for _, one := range counts {
		sums = append(sums, one.count(kind))
	}
	return percentilesOf(sums)
}

// Percentiles is the distribution of a value over the nodes. The quantiles use the nearest-rank
// method: P99 is the smallest value that 99 of 100 nodes do not exceed, and always one of the
// measured values.
type Percentiles[T int64 | time.Duration] struct{ Min, P50, P99, Max T }

// percentilesOf returns the distribution of values, which it sorts. It returns a zero Percentiles
// for an empty slice.
func percentilesOf[T int64 | time.Duration](values []T) (p Percentiles[T]) {
	if len(values) == 0 {
		return p
	}
	slices.Sort(values)
	nearest := func(percent int) T { return values[(len(values)*percent+99)/100-1] }
	return Percentiles[T]{values[0], nearest(50), nearest(99), values[len(values)-1]}
}

// processorTime returns the processor time that this process has used on all cores.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakMemory returns the peak resident size of this process in bytes; 0 if it is unknown.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	size, _, _ := strings.Cut(rest, " kB")
	kilobytes, _ := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
	return kilobytes << 10
}
