package why

import (
	"context"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Rank is a rank that runs on a node.
type Rank struct {
	Rank    int
	PID     int
	Printed int64 // total output in bytes
}

// Vigil detects that no rank of a node has made progress for the timeout.
type Vigil struct {
	Timeout    time.Duration // time without progress after which the ranks count as idle; 0 disables detection
	OutputOnly bool          // see Idle
	// Ranks returns the ranks that are running.
	Ranks func() []Rank
	// Tell is called with true when no rank has made progress for the timeout, and with false when a
	// rank makes progress again.
	Tell func(idle bool)

	used func(children []int) (map[int]time.Duration, error) // if nil, that of a new Sampler
}

// The interval between samples is a tenth of the timeout, within these limits.
const (
	shortestVigil = time.Second
	longestVigil  = 5 * time.Second
)

// Begin starts [Vigil.Run] in a goroutine. The returned function stops it and waits for its end.
// Without a timeout, Begin does nothing.
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

// Run watches the ranks until ctx ends. It ignores samples with errors, because they show nothing
// about the ranks.
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

// sample returns the usage of each running rank, and reports whether the sample is complete. A rank
// that has just ended is left out.
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
