package simulate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// rankWorld has the ranks of a job, which are goroutines. Their messages take the real path through
// the daemons.
type rankWorld struct {
	allDone    chan struct{}       // closed when all ranks have left the last fence
	countCalls func() []callCounts // returns the calls of each daemon so far

	mu         sync.Mutex
	remaining  int             // number of ranks that have not left the last fence, guarded by mu
	doneAt     time.Time       // when the last rank left it, guarded by mu
	doneCalls  []callCounts    // calls of each daemon until last, guarded by mu
	fenceTimes []time.Duration // duration of each fence of each rank, guarded by mu
}

// newRankWorld returns the ranks of a job. Without ranks, met is closed at once.
func newRankWorld(cfg Config, count func() []callCounts) *rankWorld {
	w := &rankWorld{allDone: make(chan struct{}), countCalls: count, remaining: cfg.Nodes * cfg.Ranks}
	if w.remaining == 0 {
		close(w.allDone)
	}
	return w
}

// daemonOptions returns the configuration with which a daemon runs ranks: the world, the simulated
// ranks, and the command.
func (w *rankWorld) daemonOptions(cfg Config) (config.RankOptions, deps.SimHooks, []string) {
	if cfg.Ranks == 0 {
		return config.RankOptions{}, deps.SimHooks{}, nil
	}
	return config.RankOptions{LayoutRequest: ranks.LayoutRequest{PerNode: fmt.Sprint(cfg.Ranks), Oversubscribe: true}, Stdin: -1},
		deps.SimHooks{Node: affinity.Node{}, RunRanks: func(ctx context.Context, meet *rendezvous.Node, of []ranks.Rank) error {
			return w.runRanks(ctx, cfg, meet, of)
		}},
		[]string{"/proc/self/exe"} // an existing file, which is not started
}

// runRanks runs the ranks of a node until ctx ends. It returns the error of the first rank that
// fails.
func (w *rankWorld) runRanks(ctx context.Context, cfg Config, meet *rendezvous.Node, of []ranks.Rank) error {
	// With Bytes, one goroutine enters the fences for all ranks; otherwise each rank has its own.
	playing, own := errgroup.WithContext(ctx)
	alone := of // ranks that put values and enter fences on their own
	if cfg.Bytes > 0 {
		alone = nil
		playing.Go(func() error { return w.gatherFences(own, cfg, meet, of) })
	}
	for _, rank := range alone {
		playing.Go(func() error {
			var took []time.Duration
			for fence := range cfg.Fences {
				if err := meet.PutValues(rank.Rank, map[string][]byte{fmt.Sprint("key-", fence): []byte("a value of a rank")}); err != nil {
					return err
				}
				began := time.Now()
				if err := meet.AwaitFence(own, "fence", rank.Rank, false); err != nil {
					return err
				}
				took = append(took, time.Since(began))
			}
			w.recordRankDone(took)
			return nil
		})
	}
	// Like real ranks, they do not end before ctx does.
	if err := playing.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// gatherFences enters the fences as the server of an MPI library does for all ranks of a node.
func (w *rankWorld) gatherFences(ctx context.Context, cfg Config, meet *rendezvous.Node, of []ranks.Rank) error {
	var group rendezvous.Group
	for _, rank := range of {
		group.Local = append(group.Local, rank.Rank)
	}
	var took []time.Duration
	for range cfg.Fences {
		began := time.Now()
		if _, err := meet.GatherGroup(ctx, "fence", group, make([]byte, cfg.Bytes*len(of)), false); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	for range of {
		w.recordRankDone(took)
	}
	return nil
}

// recordRankDone records the fences of a rank that has left all of them.
func (w *rankWorld) recordRankDone(took []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenceTimes = append(w.fenceTimes, took...)
	if w.remaining--; w.remaining == 0 {
		w.doneAt, w.doneCalls = time.Now(), w.countCalls()
		close(w.allDone)
	}
}

// worldTiming returns the timing of the ranks. gate is the time at which the gate opened, and calls
// the calls of each daemon until then. It returns nil if there were no ranks, or if not all of them
// have left the last fence.
func (w *rankWorld) worldTiming(cfg Config, gate time.Time, calls []callCounts) *WorldTiming {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cfg.Ranks == 0 || w.remaining > 0 {
		return nil
	}
	return &WorldTiming{Ranks: cfg.Ranks, Fences: cfg.Fences, Met: w.doneAt.Sub(gate), Fence: percentilesOf(w.fenceTimes), Calls: sumCounts(w.doneCalls...).subtract(sumCounts(calls...))}
}
