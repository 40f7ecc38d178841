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
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// rankWorld has the ranks of a job, which are goroutines. Their messages take the real path through
// the daemons.
type rankWorld struct {
	cfg        Config
	allDone    chan struct{}       // closed when all ranks have left the last fence
	countCalls func() []callCounts // returns the calls of each daemon so far

	mu         sync.Mutex
	remaining  int             // number of ranks that have not left the last fence, guarded by mu
	doneAt     time.Time       // when the last rank left it, guarded by mu
	doneCalls  []callCounts    // calls of each daemon until then, guarded by mu
	fenceTimes []time.Duration // duration of each fence of each rank, guarded by mu
}

// newRankWorld returns the ranks of a job. Without ranks, allDone is closed at once.
func newRankWorld(cfg Config, count func() []callCounts) *rankWorld {
	w := &rankWorld{
		cfg: cfg, allDone: make(chan struct{}), countCalls: count, remaining: cfg.Nodes * cfg.Ranks,
	}
	if w.remaining == 0 {
		close(w.allDone)
	}
	return w
}

// addTo makes a daemon run the simulated ranks.
func (w *rankWorld) addTo(daemon *deps.Config) {
	if w.cfg.Ranks == 0 {
		return
	}
	layout := ranks.LayoutRequest{PerNode: fmt.Sprint(w.cfg.Ranks), Oversubscribe: true}
	daemon.World = config.RankOptions{LayoutRequest: layout}
	daemon.Driver = []string{"/proc/self/exe"} // an existing file, which is not started
	daemon.Simulation = deps.SimHooks{RunRanks: w.runRanks}
}

// runRanks runs the ranks of a node until ctx ends. It returns the error of the first rank that
// fails.
func (w *rankWorld) runRanks(ctx context.Context, meet *rendezvous.Node, of []ranks.Rank) error {
	running, own := errgroup.WithContext(ctx)
	var group rendezvous.Group
	for _, rank := range of {
		group.Local = append(group.Local, rank.Rank)
	}
	for _, rank := range of {
		running.Go(func() error { return w.putAndFence(own, meet, group, rank.Rank) })
	}
	// Like real ranks, they do not end before ctx does.
	if err := running.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// putAndFence puts a value before each fence and enters it as one rank.
func (w *rankWorld) putAndFence(ctx context.Context, meet *rendezvous.Node, group rendezvous.Group, rank int) error {
	var took []time.Duration
	for fence := range w.cfg.Fences {
		value := map[string][]byte{fmt.Sprint("key-", fence): []byte("a value of a rank")}
		if err := meet.PutValues(rank, value); err != nil {
			return err
		}
		began := time.Now()
		if err := meet.EnterGroup(ctx, "fence", group, rank, rendezvous.Exchange{}); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	w.recordRankDone(took)
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
func (w *rankWorld) worldTiming(gate time.Time, calls []callCounts) *WorldTiming {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cfg.Ranks == 0 || w.remaining > 0 {
		return nil
	}
	return &WorldTiming{
		Met: w.doneAt.Sub(gate), Fence: percentilesOf(w.fenceTimes),
		Calls: sumCounts(w.doneCalls...).subtract(sumCounts(calls...)),
	}
}
