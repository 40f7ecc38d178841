package stackdump

import (
	"maps"
	"time"
)

// rankUsage is the total activity of a rank up to a point in time.
type rankUsage struct {
	CPUTime time.Duration // processor time of its process tree
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
	// pauseFactor is by how much the time without a step must exceed the longest pause before.
	pauseFactor = 2
)

// idleTracker determines since when no rank of a node has shown a sign of activity: a new step, once
// there is one, because a rank that spins makes none, and before that processor time or output.
// [idleTracker.addSample] must be called every few seconds. The zero value is ready for use. An
// idleTracker is not safe for concurrent use.
type idleTracker struct {
	// the previous sample: all running ranks by their numbers, and the number of changes of their steps
	ranks       map[int]rankUsage
	steps       int64
	lastAt      time.Time
	windowUsage map[int]rankUsage // usage at the beginning of the window
	windowStart time.Time
	lastActive  time.Time     // time of the last sign of activity
	startedAt   time.Time     // since when the ranks are those of now, until the first step
	startup     time.Duration // time until the first step
	pause       time.Duration // longest time between two steps
}

// addSample adds a sample: the activity of all ranks that run on the node, and the number of changes
// of their steps. It returns since when no rank has shown a sign of activity, or now if a rank has
// just shown one. The start and the end of a rank count as signs.
func (i *idleTracker) addSample(now time.Time, ranks map[int]rankUsage, steps int64) (since time.Time) {
	isSame := len(i.ranks) == len(ranks) && now.Sub(i.lastAt) <= maxSampleGap
	hasPrinted := false
	for rank, usage := range ranks {
		before, there := i.ranks[rank]
		isSame = isSame && there
		hasPrinted = hasPrinted || usage.Printed != before.Printed
	}
	stepsBefore := i.steps
	i.ranks, i.steps, i.lastAt = maps.Clone(ranks), steps, now
	switch elapsed := now.Sub(i.windowStart); {
	case !isSame:
		i.lastActive, i.startedAt = now, now
	case steps > 0:
		i.addSteps(now, stepsBefore)
	case hasPrinted:
		i.lastActive = now
	case i.usedProcessor(max(elapsed, idleWindow)): // more than idle ranks use in a whole window
		i.lastActive = now
	case elapsed < idleWindow:
		return i.lastActive
	}
	i.windowUsage, i.windowStart = i.ranks, now
	return i.lastActive
}

// addSteps records whether the steps have changed since the previous sample, and the pause before
// that.
func (i *idleTracker) addSteps(now time.Time, before int64) {
	switch {
	case i.steps == before:
		return
	case before == 0:
		i.startup = now.Sub(i.startedAt)
	default:
		i.pause = max(i.pause, now.Sub(i.lastActive))
	}
	i.lastActive = now
}

// minTimeout returns the minimum time without a sign after which ranks can be called idle. Once
// there are steps, it is twice the longest pause between two steps so far, because the program may work as
// long without a step again. The time until the first step counts as a pause as long as each rank may
// have reported no more than one.
func (i *idleTracker) minTimeout() time.Duration {
	if i.steps <= int64(len(i.ranks)) {
		return pauseFactor * max(i.startup, i.pause)
	}
	return pauseFactor * i.pause
}

// usedProcessor reports whether a rank has used processor time since the beginning of the window. A
// decrease means that one of its processes has ended, which counts as well.
func (i *idleTracker) usedProcessor(elapsed time.Duration) bool {
	for rank, usage := range i.ranks {
		used := usage.CPUTime - i.windowUsage[rank].CPUTime
		if used < 0 || used > time.Duration(maxIdleShare*float64(elapsed)) {
			return true
		}
	}
	return false
}
