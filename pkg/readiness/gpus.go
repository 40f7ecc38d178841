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

// Driver is what is asked for the GPUs of a node. It keeps them attached from the first question to Close.
type Driver interface {
	// Probe takes one look, and tells how far it has got. What is not answered is in the facts; the error says why there
	// are none at all.
	Probe(ctx context.Context, tell func(gpu.Progress)) (gpu.Facts, error)
	// Watch tells of what befalls GPUs until ctx ends. It calls ready once, when
	// nothing will be missed any more, with how many it watches, and tally now
	// and then.
	Watch(ctx context.Context, ready func(gpus int), event func(gpu.Event), tally func([]gpu.Tally)) error
	// Close lets go of the GPUs. It waits, until ctx ends, for a question that they have not answered.
	Close(ctx context.Context) error
}

var _ Driver = (*gpu.Session)(nil)

// closeTime is how long a driver that attaches GPUs is waited for at the end: its last question must not be cut short,
// and a launcher kills what is left of a step some 30 s after it has asked it to end (Slurm's KillWait).
const closeTime = 20 * time.Second

var errOver = errors.New("nobody needs the GPUs any more")

// GPUs are those of the node: a Part, and what is watched while the driver runs.
type GPUs struct {
	Driver Driver
	// CUDA asks CUDA's driver, once NVML has shown a GPU; nil: nobody does.
	CUDA   func(context.Context) (cuda.Facts, error)
	Expect fitness.Expect
	// Named says that the library's place was told: then it is asked whatever the node looks like.
	Named bool
	// Root is where /dev, /proc and /sys are.
	Root string
	// Table says what is thought of what befalls them.
	Table gpu.XidTable

	mu      sync.Mutex
	facts   gpu.Facts       // of the last look; guarded by mu
	courses history.Courses // since Watch has begun, of cards since the first Devices; guarded by mu
	silent  bool            // a card has not told its counts; guarded by mu
	shown   *cuda.Facts     // by CUDA's driver, at the last look that has asked it; guarded by mu
}

// Look asks the GPUs, where there is any sign of one or any should be: a process is started for it. While they come
// slowly soFar is told how many there are.
func (g *GPUs) Look(ctx context.Context, soFar func([]check.Finding)) []check.Finding {
	expect := g.Expect
	expect.Signs, expect.Named = gpu.Present(g.Root), g.Named
	facts := gpu.Facts{Version: gpu.FactsVersion, Init: gpu.LibraryNotFound}
	shows := g.askCUDA(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	if len(expect.Signs) == 0 && !g.Named {
		facts.Others = gpu.Others(g.Root)
	}
	if len(facts.Others) == 0 && (g.Named || len(expect.Signs) > 0 || expect.Needed()) {
		began := time.Now()
		asked, err := g.Driver.Probe(ctx, func(p gpu.Progress) {
			if p.Came == p.Of {
				asking.Go(func() { shows() }) // while NVML is asked for the rest
			}
			if time.Since(began) >= toldAfter {
				soFar([]check.Finding{fitness.Attaching(p)})
			}
		})
		if err != nil { // ctx is over, and nobody minds what is found
			g.Close()
			return []check.Finding{{ID: "gpu.nvml", Verdict: check.Unknown, Observed: err.Error()}}
		}
		facts = asked
	}
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

// toldAfter is how long a look may take before it is told how far it has got.
const toldAfter = time.Second

// askCUDA returns what asks what a program would find: once, whoever calls it first, and all get the same answer.
func (g *GPUs) askCUDA(ctx context.Context) func() cuda.Facts {
	return sync.OnceValue(func() cuda.Facts {
		if g.CUDA == nil || g.Expect.Forgone() {
			return cuda.Facts{}
		}
		facts, _ := g.CUDA(ctx) // its error is the end of ctx
		return facts
	})
}

func (g *GPUs) seen() gpu.Facts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts
}

// recorded is what was seen of the GPUs at the last look, and what was expected.
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

// Traits are those of the GPUs as they were last seen.
func (g *GPUs) Traits() []check.Trait { return fitness.Traits(g.seen(), g.Expect) }

// Topology is where the GPUs sit in the machine, as they were last seen.
func (g *GPUs) Topology() gpu.Topology { return gpu.Topologize(g.Root, g.seen()) }

// Watch tells what befalls the GPUs until ctx ends. It returns at once where the last look has seen none. What befalls
// those that are not the job's is to be ignored: it ends another's. It lets go of the GPUs at its end.
func (g *GPUs) Watch(ctx context.Context, ready func(gpus int), event func(gpu.Judged)) error {
	facts := g.seen()
	if len(facts.GPUs) == 0 {
		ready(0)
		return nil
	}
	defer g.Close()
	heard := hearsay{told: make(map[matter]word), tell: event}
	hear := func(e gpu.Event, kernel bool) {
		judged := g.Table.Judge(e)
		if !fitness.Concerns(facts, g.Expect, e) {
			judged.Effect = gpu.EffectIgnore
		}
		heard.hear(judged, kernel)
	}
	var follow sync.WaitGroup
	defer follow.Wait()
	life, end := context.WithCancelCause(ctx)
	defer end(errOver)
	follow.Go(func() { g.followKernel(life, facts.GPUs, func(e gpu.Event) { hear(e, true) }) })
	return g.Driver.Watch(ctx, ready, func(e gpu.Event) { hear(e, false) }, g.count)
}

// Close lets go of the GPUs.
func (g *GPUs) Close() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTime, errOver)
	defer cancel()
	_ = g.Driver.Close(ctx) // it returns none
}
