package stackdump

import (
	"maps"
	"time"
)

// Usage is the total activity of a rank up to a point in time.
type Usage struct {
	CPUTime time.Duration // processor time of its process tree; see CPUSampler
	Printed int64         // amount of output in bytes
}

const (
	// idleWindow is the period over which processor time is averaged, because the kernel counts it in
	// hundredths of a second.
	idleWindow = 10 * time.Second
	// maxIdleShare is the part of a core that an idle rank may use. It is several times the amount
	// that heartbeats and watchdogs of common frameworks need.
	maxIdleShare = 0.01
	// maxSampleGap is the maximum time between two samples. After a longer gap the daemon itself has
	// probably not run, for example because the job was suspended, and the samples show nothing.
	maxSampleGap = 2 * idleWindow
)

// IdleTracker determines since when no rank of a node has made progress: used processor time or
// printed anything. [IdleTracker.AddSample] must be called every few seconds. The zero value is
// ready for use. An IdleTracker is not safe for concurrent use.
type IdleTracker struct {
	// OutputOnly ignores processor time, because some ranks use it while they wait for each other.
	OutputOnly bool

	lastUsage   map[int]Usage // previous sample, by rank
	lastAt      time.Time
	windowUsage map[int]Usage // usage at the beginning of the window
	windowStart time.Time
	lastActive  time.Time // time of the last progress
}

// AddSample adds a sample: the usage of all ranks that run on the node. It returns since when no
// rank has made progress, or now if a rank has just made progress. The start and the end of a rank
// count as progress.
func (i *IdleTracker) AddSample(now time.Time, ranks map[int]Usage) (since time.Time) {
	// Compare with the previous sample: is it recent, with the same ranks and the same output?
	known := len(i.lastUsage) == len(ranks) && now.Sub(i.lastAt) <= maxSampleGap
	for rank, usage := range ranks {
		before, there := i.lastUsage[rank]
		known = known && there && usage.Printed == before.Printed
	}
	i.lastUsage, i.lastAt = maps.Clone(ranks), now
	switch elapsed := now.Sub(i.windowStart); {
	case !known:
		i.lastActive = now
	case elapsed < idleWindow:
		return i.lastActive
	case !i.OutputOnly && i.usedProcessor(elapsed):
		i.lastActive = now
	}
	i.windowUsage, i.windowStart = i.lastUsage, now
	return i.lastActive
}

// usedProcessor reports whether a rank has used processor time since the beginning of the window. A
// decrease means that one of its processes has ended, which counts as well.
func (i *IdleTracker) usedProcessor(elapsed time.Duration) bool {
	for rank, usage := range i.lastUsage {
		used := usage.CPUTime - i.windowUsage[rank].CPUTime
		if used < 0 || used > time.Duration(maxIdleShare*float64(elapsed)) {
			return true
		}
	}
	return false
}
