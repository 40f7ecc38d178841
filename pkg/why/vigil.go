package why

import (
	"context"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Rank is one that runs on a node.
type Rank struct {
	Rank    int
	PID     int
	Printed int64 // bytes, in all
}

// Vigil watches a node's ranks for as long as they run.
type Vigil struct {
	Timeout    time.Duration // of doing nothing
	OutputOnly bool          // see Idle
	// Ranks returns those that run.
	Ranks func() []Rank
	// Tell is told when none of them has done anything for the timeout, and when one does something again.
	Tell func(idle bool)

	used func(children []int) (map[int]time.Duration, error) // a Sampler's, where it is nil
}

// The pace of a vigil: a tenth of the timeout, within bounds.
const (
	shortestVigil = time.Second
	longestVigil  = 5 * time.Second
)

// Begin runs it until the function that it returns is called, which waits for its end. One
// without a timeout never tells anything.
func (v Vigil) Begin(ctx context.Context) (end func()) {
	if v.Timeout == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { v.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// Run watches until ctx ends. A look at /proc that fails tells nothing of the ranks, and counts as none.
func (v Vigil) Run(ctx context.Context) {
	if v.used == nil {
		v.used = NewSampler().Used
	}
	idle, told := Idle{OutputOnly: v.OutputOnly}, false
	for pause.For(ctx, min(max(v.Timeout/10, shortestVigil), longestVigil)) {
		usage, ok := v.sample()
		if !ok {
			continue
		}
		now := time.Now()
		since := idle.Add(now, usage)
		if is := len(usage) > 0 && now.Sub(since) >= v.Timeout; is != told {
			told = is
			v.Tell(is)
		}
	}
}

// sample is what the ranks have used and printed up to now. One that has just ended is not in it.
func (v Vigil) sample() (map[int]Usage, bool) {
	ranks := v.Ranks()
	var pids []int
	for _, rank := range ranks {
		pids = append(pids, rank.PID)
	}
	used, err := v.used(pids)
	usage := make(map[int]Usage, len(ranks))
	for _, rank := range ranks {
		if spent, there := used[rank.PID]; there {
			usage[rank.Rank] = Usage{Used: spent, Printed: rank.Printed}
		}
	}
	return usage, err == nil
}
