package why

import (
	"maps"
	"time"
)

// Usage is what a rank has done up to a moment.
type Usage struct {
	Used    time.Duration // processor time of its whole family: see Sampler
	Printed int64         // bytes
}

const (
	// idleWindow is over how long processor time is looked at together: the kernel counts it in hundredths of a second.
	idleWindow = 10 * time.Second
	// idleShare is which part of a core a rank may use that does nothing: what the heartbeats and watchdogs of common
	// frameworks need, several times over.
	idleShare = 0.01
	// longestGap is how long after the last sample another one tells what was between: we may not have run ourselves,
	// in a job that was suspended.
	longestGap = 2 * idleWindow
)

// Idle tells since when none of a node's ranks does anything: uses no processor time and prints nothing. It is told of
// them every few seconds. The zero value has been told nothing; it is for one goroutine.
type Idle struct {
	// OutputOnly has processor time be no sign of life: there are ranks that spin while they wait for each other.
	OutputOnly bool

	last    map[int]Usage // by rank
	lastAt  time.Time
	begin   map[int]Usage // of the window
	beginAt time.Time
	active  time.Time // when one of them did something last
}

// Add takes in what the ranks have used and printed up to now, all of them that run on the node, and returns since when
// none has done anything, which is now where one has. A rank that has begun or ended has done something.
func (i *Idle) Add(now time.Time, ranks map[int]Usage) (since time.Time) {
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

// worked tells whether a rank has used processor time since the window began. Less than then means that a process of
// it has ended.
func (i *Idle) worked(elapsed time.Duration) bool {
	for rank, usage := range i.last {
		used := usage.Used - i.begin[rank].Used
		if used < 0 || used > time.Duration(idleShare*float64(elapsed)) {
			return true
		}
	}
	return false
}
