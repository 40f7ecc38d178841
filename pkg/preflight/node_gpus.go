package preflight

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// GPUProber gives access to the GPUs of a node. It keeps them attached from the first call of Probe
// or Watch until Close.
type GPUProber interface {
	// Probe queries the GPUs once. It passes its progress to the callback. Values that are missing are
	// marked in the facts. It returns an error only if there are no facts at all.
	Probe(ctx context.Context, tell func(gpu.Progress)) (gpu.Facts, error)
	// Watch calls event for each event of the GPUs until ctx ends. It calls ready once, when no
	// further events can be missed, with the number of GPUs that it watches.
	Watch(ctx context.Context, ready func(gpus int), event func(gpu.Event)) error
	// Close detaches the GPUs. It waits for a query that is still running, until ctx ends.
	Close(ctx context.Context) error
}

var _ GPUProber = (*gpu.Session)(nil)

// gpuCloseTimeout is how long Close waits for a driver that attaches GPUs. The last query must not
// be interrupted, but a launcher kills the rest of a step some 30 s after its request to end
// (Slurm's KillWait).
const gpuCloseTimeout = 20 * time.Second

var errGPUsReleased = errors.New("the GPUs were released")

// GPUs are the GPUs of the node. Before the gate opens, their state is part of the node's checks;
// while the driver runs, their events are watched.
type GPUs struct {
	Prober GPUProber
	// CUDA queries the CUDA driver after NVML has found a GPU; nil: it is not queried.
	CUDA   func(context.Context) (gpu.CUDAFacts, error)
	Expect fitness.Expectation
	// LibraryNamed says that the LD_LIBRARY_PATH of the job has NVML. It is then queried even if there
	// is no sign of a GPU.
	LibraryNamed bool
	// Root is the directory that contains /dev, /proc and /sys.
	Root string

	mu        sync.Mutex
	facts     gpu.Facts      // from the last query; guarded by mu
	cudaFacts *gpu.CUDAFacts // from the last query of the CUDA driver; guarded by mu
}

// Inspect queries the GPUs in a child process, if there is any sign of GPUs or if the job expects
// some. While attaching them takes long, it calls soFar with the progress.
func (g *GPUs) Inspect(ctx context.Context, soFar func([]check.Finding)) []check.Finding {
	expect := g.Expect
	expect.Signs, expect.LibraryNamed = gpu.FindNVIDIASigns(g.Root), g.LibraryNamed
	facts := gpu.Facts{Version: gpu.FactsVersion, Init: gpu.LibraryNotFound}
	// shows queries the CUDA driver at most once, perhaps while NVML is still running.
	shows := g.cudaQuery(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	// Without any sign of NVIDIA GPUs, look for GPUs of other vendors.
	if len(expect.Signs) == 0 && !g.LibraryNamed {
		facts.OtherGPUs = gpu.FindOtherGPUs(g.Root)
	}
	if len(facts.OtherGPUs) == 0 && (g.LibraryNamed || len(expect.Signs) > 0 || expect.NeedsGPUs()) {
		began := time.Now()
		asked, err := g.Prober.Probe(ctx, func(p gpu.Progress) {
			if p.Initialised == p.Total {
				asking.Go(func() { shows() }) // while NVML queries the rest
			}
			if time.Since(began) >= progressDelay {
				soFar([]check.Finding{fitness.AttachingFinding(p)})
			}
		})
		if err != nil { // ctx has ended, and the findings are not used
			g.Close()
			return []check.Finding{{ID: "gpu.nvml", Verdict: check.Unknown, Observed: err.Error()}}
		}
		facts = asked
	}
	g.mu.Lock()
	g.facts = facts
	g.mu.Unlock()
	found := fitness.EvaluateFacts(facts, expect)
	if g.CUDA != nil && fitness.CanQueryCUDA(facts, expect) {
		if shown := shows(); ctx.Err() == nil {
			found = append(found, fitness.CheckCUDA(shown, facts, expect)...)
			g.mu.Lock()
			g.cudaFacts = &shown
			g.mu.Unlock()
		}
	}
	return found
}

// progressDelay is how long a query runs before its progress is reported.
const progressDelay = time.Second

// cudaQuery returns a function that queries the CUDA driver on its first call. All calls return the
// same result. The function is safe for concurrent use.
func (g *GPUs) cudaQuery(ctx context.Context) func() gpu.CUDAFacts {
	return sync.OnceValue(func() gpu.CUDAFacts {
		if g.CUDA == nil || g.Expect.HasNoGPUs() {
			return gpu.CUDAFacts{}
		}
		facts, _ := g.CUDA(ctx) // returns an error only if ctx has ended
		return facts
	})
}

// lastFacts returns the facts of the last query.
func (g *GPUs) lastFacts() gpu.Facts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts
}

// recordingData returns the facts of the last query, without private information, and the
// expectations.
func (g *GPUs) recordingData() Recording {
	g.mu.Lock()
	defer g.mu.Unlock()
	want := g.Expect
	expected := &ExpectedGPUs{
		Count: want.Count, CountFrom: want.CountSource, PCIOrder: want.PCIBusOrder, Mode: want.Mode,
		Signs: gpu.FindNVIDIASigns(g.Root), Named: g.LibraryNamed,
	}
	if want.Visible != nil {
		expected.Visible = []string{}
	}
	for _, entry := range want.Visible {
		expected.Visible = append(expected.Visible, entry.String())
	}
	return Recording{Facts: anonymizeFacts(g.facts), Expected: expected, CUDA: g.cudaFacts}
}

// Attributes returns the attributes of the GPUs as of the last query.
func (g *GPUs) Attributes() []check.Attribute { return fitness.Attributes(g.lastFacts(), g.Expect) }

// Topology returns the positions of the GPUs in the machine as of the last query.
func (g *GPUs) Topology() gpu.Topology { return gpu.BuildTopology(g.Root, g.lastFacts()) }

// Watch calls event for each event of the GPUs until ctx ends. It classifies the events; those of
// GPUs that belong to other jobs have the effect EffectIgnore. It calls ready once with the number
// of GPUs that it watches. It returns at once if the last query has found no GPU. Before it
// returns, it detaches the GPUs.
func (g *GPUs) Watch(ctx context.Context, ready func(gpus int), event func(gpu.ClassifiedEvent)) error {
	facts := g.lastFacts()
	if len(facts.GPUs) == 0 {
		ready(0)
		return nil
	}
	defer g.Close()
	return g.Prober.Watch(ctx, ready, func(e gpu.Event) {
		classified := gpu.ClassifyEvent(e)
		if !fitness.ConcernsJob(facts, g.Expect, e) {
			classified.Effect = gpu.EffectIgnore
		}
		event(classified)
	})
}

// Close detaches the GPUs. It waits at most gpuCloseTimeout.
func (g *GPUs) Close() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), gpuCloseTimeout, errGPUsReleased)
	defer cancel()
	_ = g.Prober.Close(ctx) // never returns an error
}
