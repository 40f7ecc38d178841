package simulate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// world is the ranks of a job, which are goroutines: what they tell each other goes its real way.
type world struct {
	met   chan struct{}  // closed when all have left the last fence
	count func() []count // of the calls of each daemon so far

	mu   sync.Mutex
	left int             // ranks that have not, guarded by mu
	last time.Time       // when the last one had, guarded by mu
	then []count         // by how many calls, guarded by mu
	took []time.Duration // each fence of each rank, guarded by mu
}

func newWorld(cfg Config, count func() []count) *world {
	w := &world{met: make(chan struct{}), count: count, left: cfg.Nodes * cfg.Ranks}
	if w.left == 0 {
		close(w.met)
	}
	return w
}

// means is what makes a daemon one of a world.
func (w *world) means(cfg Config) (config.RankOptions, config.SimHooks, []string) {
	if cfg.Ranks == 0 {
		return config.RankOptions{}, config.SimHooks{}, nil
	}
	return config.RankOptions{LayoutRequest: ranks.LayoutRequest{PerNode: fmt.Sprint(cfg.Ranks), Oversubscribe: true}, Stdin: -1},
		config.SimHooks{Node: affinity.Node{}, RunRanks: func(ctx context.Context, meet *rendezvous.Node, of []ranks.Rank) error {
			return w.play(ctx, cfg, meet, of)
		}},
		[]string{"/proc/self/exe"} // which is there, and is not started
}

// play is what the ranks of a node do, until ctx ends. Its error is of the first that could not do
// it.
func (w *world) play(ctx context.Context, cfg Config, meet *rendezvous.Node, of []ranks.Rank) error {
	playing, own := errgroup.WithContext(ctx)
	alone := of // who puts and meets for itself
	if cfg.Bytes > 0 {
		alone = nil
		playing.Go(func() error { return w.gather(own, cfg, meet, of) })
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
			w.note(took)
			return nil
		})
	}
	if err := playing.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// gather is what the server of an MPI does for the ranks of a node.
func (w *world) gather(ctx context.Context, cfg Config, meet *rendezvous.Node, of []ranks.Rank) error {
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
		w.note(took)
	}
	return nil
}

// note takes in a rank that has left all fences.
func (w *world) note(took []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took...)
	if w.left--; w.left == 0 {
		w.last, w.then = time.Now(), w.count()
		close(w.met)
	}
}

// seen is what was seen of the ranks from the gate on, which was open at some time and by so many
// calls; nil: there were none, or not all have met.
func (w *world) seen(cfg Config, gate time.Time, calls []count) *World {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cfg.Ranks == 0 || w.left > 0 {
		return nil
	}
	return &World{Ranks: cfg.Ranks, Fences: cfg.Fences, Met: w.last.Sub(gate), Fence: spreadOf(w.took), Calls: tally(w.then...).less(tally(calls...))}
}
