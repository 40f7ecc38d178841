package readiness

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/history"
	"github.com/bringupd/bringupd/pkg/recording"
)

// Driver gives access to the GPUs of a node. It keeps them attached from the first call of Probe or
// Watch until Close.
type Driver interface {
	// Probe queries the GPUs once. It passes its progress to the callback. Values that are missing are
	// marked in the facts. It returns an error only if there are no facts at all.
	Probe(ctx context.Context, tell func(gpu.Progress)) (gpu.Facts, error)
	// Watch calls event for each event of the GPUs until ctx ends. It calls ready once, when no
	// further events can be missed, with the number of GPUs that it watches. It calls tally from time
	// to time with the counters.
	Watch(ctx context.Context, ready func(gpus int), event func(gpu.Event), tally func([]gpu.Tally)) error
	// Close detaches the GPUs. It waits for a query that is still running, until ctx ends.
	Close(ctx context.Context) error
}

var _ Driver = (*gpu.Session)(nil)

// closeTime is how long Close waits for a driver that attaches GPUs. The last query must not be
// interrupted, but a launcher kills the rest of a step some 30 s after its request to end (Slurm's
// KillWait).
const closeTime = 20 * time.Second

var errOver = errors.New("nobody needs the GPUs any more")

// GPUs are the GPUs of the node. Before the gate opens, their state is part of the node's checks;
// while the driver runs, their events are watched.
type GPUs struct {
	Driver Driver
	// CUDA queries the CUDA driver after NVML has found a GPU; nil: it is not queried.
	CUDA   func(context.Context) (cuda.Facts, error)
	Expect fitness.Expect
	// Named says that the user has set the path of the NVML library. The library is then queried even
	// if there is no sign of a GPU.
	Named bool
	// Root is the directory that contains /dev, /proc and /sys.
	Root string
	// Table classifies the events of the GPUs.
	Table gpu.XidTable

	mu    sync.Mutex
	facts gpu.Facts // from the last query; guarded by mu
	// courses contains the counters of the GPUs since the start of Watch, and of the network cards
	// since the first call of Devices; guarded by mu.
	courses history.Courses
	silent  bool        // a network card has not returned its counters; guarded by mu
	shown   *cuda.Facts // from the last query of the CUDA driver; guarded by mu
}

// Look queries the GPUs in a child process, if there is any sign of GPUs or if the job expects
// some. While attaching them takes long, it calls soFar with the progress.
func (g *GPUs) Look(ctx context.Context, soFar func([]check.Finding)) []check.Finding {
	expect := g.Expect
	expect.Signs, expect.Named = gpu.Present(g.Root), g.Named
	facts := gpu.Facts{Version: gpu.FactsVersion, Init: gpu.LibraryNotFound}
	// shows queries the CUDA driver at most once, perhaps while NVML is still running.
	shows := g.askCUDA(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	// Without any sign of NVIDIA GPUs, look for GPUs of other vendors.
	if len(expect.Signs) == 0 && !g.Named {
		facts.Others = gpu.Others(g.Root)
	}
	// Query NVML. Its error is returned only if ctx has ended.
	if len(facts.Others) == 0 && (g.Named || len(expect.Signs) > 0 || expect.Needed()) {
		began := time.Now()
		asked, err := g.Driver.Probe(ctx, func(p gpu.Progress) {
			if p.Came == p.Of {
				asking.Go(func() { shows() }) // while NVML queries the rest
			}
			if time.Since(began) >= toldAfter {
				soFar([]check.Finding{fitness.Attaching(p)})
			}
		})
		if err != nil { // ctx has ended, and the findings are not used
			g.Close()
			return []check.Finding{{ID: "gpu.nvml", Verdict: check.Unknown, Observed: err.Error()}}
		}
		facts = asked
	}
	// Store the facts for other methods, and evaluate them.
	g.mu.Lock()
	g.facts = facts
	g.mu.Unlock()
	found := fitness.Evaluate(facts, expect)
	if want, ask := fitness.CUDA(facts, expect); ask && g.CUDA != nil {
		if shown := shows(); ctx.Err() == nil {
			found = append(found, cuda.Judge(shown, want)...)
			g.mu.Lock()
			g.shown = &shown
			g.mu.Unlock()
		}
	}
	return found
}

// toldAfter is how long a query runs before its progress is reported.
const toldAfter = time.Second

// askCUDA returns a function that queries the CUDA driver on its first call. All calls return the
// same result. The function is safe for concurrent use.
func (g *GPUs) askCUDA(ctx context.Context) func() cuda.Facts {
	return sync.OnceValue(func() cuda.Facts {
		if g.CUDA == nil || g.Expect.Forgone() {
			return cuda.Facts{}
		}
		facts, _ := g.CUDA(ctx) // returns an error only if ctx has ended
		return facts
	})
}

// seen returns the facts of the last query.
func (g *GPUs) seen() gpu.Facts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts
}

// recorded returns the facts of the last query and the expectations, for a recording.
func (g *GPUs) recorded() recording.GPUs {
	g.mu.Lock()
	defer g.mu.Unlock()
	facts, want := g.facts, g.Expect
	expected := &recording.Expected{
		Count: want.Count, CountFrom: want.CountFrom, PCIOrder: want.PCIOrder, Mode: want.Mode,
		Signs: gpu.Present(g.Root), Named: g.Named,
	}
	if want.Visible != nil {
		expected.Visible = []string{}
	}
	for _, entry := range want.Visible {
		expected.Visible = append(expected.Visible, entry.String())
	}
	return recording.GPUs{Facts: &facts, Expected: expected, CUDA: g.shown}
}

// Traits returns the attributes of the GPUs as of the last query.
func (g *GPUs) Traits() []check.Trait { return fitness.Traits(g.seen(), g.Expect) }

// Topology returns the positions of the GPUs in the machine as of the last query.
func (g *GPUs) Topology() gpu.Topology { return gpu.Topologize(g.Root, g.seen()) }

// Watch calls event for each event of the GPUs, from NVML and from the kernel log, until ctx ends.
// It classifies the events; those of GPUs that belong to other jobs have the effect EffectIgnore.
// It calls ready once with the number of GPUs that it watches. It returns at once if the last query
// has found no GPU. Before it returns, it detaches the GPUs.
func (g *GPUs) Watch(ctx context.Context, ready func(gpus int), event func(gpu.Judged)) error {
	facts := g.seen()
	if len(facts.GPUs) == 0 {
		ready(0)
		return nil
	}
	defer g.Close()
	// Classify each event and pass it on, unless the other source has reported it already.
	heard := hearsay{told: make(map[matter]word), tell: event}
	hear := func(e gpu.Event, kernel bool) {
		judged := g.Table.Judge(e)
		if !fitness.Concerns(facts, g.Expect, e) {
			judged.Effect = gpu.EffectIgnore
		}
		heard.hear(judged, kernel)
	}
	// Follow the kernel log until the driver's watch ends.
	var follow sync.WaitGroup
	defer follow.Wait()
	life, end := context.WithCancelCause(ctx)
	defer end(errOver)
	follow.Go(func() { g.followKernel(life, facts.GPUs, func(e gpu.Event) { hear(e, true) }) })
	return g.Driver.Watch(ctx, ready, func(e gpu.Event) { hear(e, false) }, g.count)
}

// Close detaches the GPUs. It waits at most closeTime.
func (g *GPUs) Close() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTime, errOver)
	defer cancel()
	_ = g.Driver.Close(ctx) // never returns an error
}
