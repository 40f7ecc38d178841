package why

import (
	"maps"
	"time"
)

// Usage is the total activity of a rank up to a point in time.
type Usage struct {
	Used    time.Duration // processor time of its process tree; see Sampler
	Printed int64         // amount of output in bytes
}

const (
	// idleWindow is the period over which processor time is averaged, because the kernel counts it in
	// hundredths of a second.
	idleWindow = 10 * time.Second
	// idleShare is the part of a core that an idle rank may use. It is several times the amount that
	// heartbeats and watchdogs of common frameworks need.
	idleShare = 0.01
	// longestGap is the maximum time between two samples. After a longer gap the daemon itself has
	// probably not run, for example because the job was suspended, and the samples show nothing.
	longestGap = 2 * idleWindow
)

// Idle determines since when no rank of a node has made progress: used processor time or printed
// anything. [Idle.Add] must be called every few seconds. The zero value is ready for use. An Idle
// is not safe for concurrent use.
type Idle struct {
	// OutputOnly ignores processor time, because some ranks use it while they wait for each other.
	OutputOnly bool

	last    map[int]Usage // previous sample, by rank
	lastAt  time.Time
	begin   map[int]Usage // usage at the beginning of the window
	beginAt time.Time
	active  time.Time // time of the last progress
}

// Add adds a sample: the usage of all ranks that run on the node. It returns since when no rank has
// made progress, or now if a rank has just made progress. The start and the end of a rank count as
// progress.
func (i *Idle) Add(now time.Time, ranks map[int]Usage) (since time.Time) {
	// Compare with the previous sample: is it recent, with the same ranks and the same output?
	known := len(i.last) == len(ranks) && now.Sub(i.lastAt) <= longestGap
	for rank, usage := range ranks {
		before, there := i.last[rank]
		known = known && there && usage.Printed == before.Printed
	}
	i.last, i.lastAt = maps.Clone(ranks), now
	switch elapsed := now.Sub(i.beginAt); {
	case !known:
		i.active = now
	case elapsed < idleWindow:
		return i.active
	case !i.OutputOnly && i.worked(elapsed):
		i.active = now
	}
	i.begin, i.beginAt = i.last, now
	return i.active
}

// worked reports whether a rank has used processor time since the beginning of the window. A
// decrease means that one of its processes has ended, which counts as well.
func (i *Idle) worked(elapsed time.Duration) bool {
	for rank, usage := range i.last {
		used := usage.Used - i.begin[rank].Used
		if used < 0 || used > time.Duration(idleShare*float64(elapsed)) {
			return true
		}
	}
	return false
}
