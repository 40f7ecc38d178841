package preflight

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// fakeGPUs are two healthy GPUs, both of which are lost when they are watched.
type fakeGPUs struct {
	// probe is called before the GPUs are found, and may be nil.
	probe  func(ctx context.Context, tell func(gpu.Progress)) error
	closed bool
}

func (f *fakeGPUs) Probe(ctx context.Context, tell func(gpu.Progress)) (gpu.Facts, error) {
	if f.probe != nil {
		if err := f.probe(ctx, tell); err != nil {
			return gpu.Facts{}, err
		}
	}
	return gpu.Facts{Version: gpu.FactsVersion, Init: gpu.Success, GPUs: []gpu.GPU{
		{Index: 0, Handle: gpu.Success, Bus: reading("0000:1b:00.0")},
		{Index: 1, Handle: gpu.Success, Bus: reading("0000:3b:00.0")},
	}}, nil
}

func (*fakeGPUs) Watch(_ context.Context, ready func(int), event func(gpu.Event)) error {
	ready(2)
	for i := range 2 {
		event(gpu.Event{Kind: gpu.KindLost, GPU: i})
	}
	return nil
}

func (f *fakeGPUs) Close(context.Context) error {
	f.closed = true
	return nil
}

// TestWatchOfOthers verifies that, on a node shared by several jobs, the loss of a GPU ends the job
// that uses it.
func TestWatchOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		want    fitness.Expectation
		effects []gpu.Effect
	}{
		"both are ours": {fitness.Expectation{Count: -1}, []gpu.Effect{gpu.EffectFatal, gpu.EffectFatal}},
		"one is": {fitness.Expectation{Count: 1, Visible: []gpu.Selector{{Index: 1}}},
			[]gpu.Effect{gpu.EffectIgnore, gpu.EffectFatal}},
		"none is": {fitness.Expectation{Count: 0}, []gpu.Effect{gpu.EffectIgnore, gpu.EffectIgnore}},
	} {
		t.Run(name, func(t *testing.T) {
			driver := &fakeGPUs{}
			g := &GPUs{Prober: driver, Expect: tc.want, LibraryNamed: true, Root: t.TempDir()}
			g.Inspect(t.Context(), nil)
			if driver.closed {
				t.Error("the GPUs are let go of before they are watched")
			}
			var got []gpu.Effect
			err := g.Watch(t.Context(), func(int) {}, func(e gpu.ClassifiedEvent) { got = append(got, e.Effect) })
			must(t, err)
			if diff := cmp.Diff(tc.effects, got); diff != "" || !driver.closed {
				t.Errorf("%s; closed: %t", diff, driver.closed)
			}
		})
	}
}

// TestGPUsThatComeSlowly verifies that a driver that attaches GPUs slowly is waited for, and that
// its progress is reported.
func TestGPUsThatComeSlowly(t *testing.T) {
	slow := &fakeGPUs{probe: func(_ context.Context, tell func(gpu.Progress)) error {
		tell(gpu.Progress{Total: 2}) // at once, even if it is not reported
		time.Sleep(progressDelay)
		tell(gpu.Progress{Initialised: 1, Total: 2, SlowCalls: "nvmlDeviceGetHandleByIndex_v2 of GPU 1"})
		return nil
	}}
	g := &GPUs{Prober: slow, Expect: fitness.Expectation{Count: -1}, LibraryNamed: true, Root: t.TempDir()}
	node := &NodeChecks{nodeChecks: []nodeCheck{g}, gpus: g}
	node.Policy.Mode = check.ModeAuto
	var told []check.Finding
	var report check.Report
	synctest.Test(t, func(t *testing.T) {
		report = node.AwaitReady(t.Context(), func(report check.Report) { told = append(told, report.Findings...) })
	})
	if len(told) != 1 || told[0].ID != "gpu.nvml" || told[0].Verdict != check.Wait ||
		told[0].Observed != "1 of 2 GPUs are initialised; waiting for nvmlDeviceGetHandleByIndex_v2 of GPU 1" {
		t.Errorf("it tells %+v", told)
	}
	if report.Verdict == check.Wait {
		t.Errorf("it ends with %+v", report)
	}
}

// TestLookGivenUp verifies that an inspection is waited for after its context has ended: the driver
// call in it must not be interrupted.
func TestLookGivenUp(t *testing.T) {
	driver := &fakeGPUs{probe: func(ctx context.Context, _ func(gpu.Progress)) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	g := &GPUs{Prober: driver, Expect: fitness.Expectation{Count: -1}, LibraryNamed: true, Root: t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the job is over"))
	if found := g.Inspect(ctx, nil); len(found) != 1 || found[0].Verdict != check.Unknown || !driver.closed {
		t.Errorf("%+v; closed: %t", found, driver.closed)
	}
}

// TestNoGPU verifies that, on a node without any sign of a GPU, for a job that has not requested
// one, no driver is queried.
func TestNoGPU(t *testing.T) {
	checks, err := NewNodeChecks(NodeConfig{Config: check.Config{Policy: check.Policy{Mode: check.ModeAuto}},
		GrantedGPUs: -1, Root: t.TempDir(), TempDir: t.TempDir()})
	must(t, err)
	checks.gpus.Prober = untouchable{t}
	checks.gpus.CUDA = func(context.Context) (gpu.CUDAFacts, error) {
		t.Error("CUDA's driver is asked")
		return gpu.CUDAFacts{}, nil
	}
	report := checks.AwaitReady(t.Context(), nil)
	if err := checks.GPUs().Watch(t.Context(), func(gpus int) {
		if gpus != 0 {
			t.Errorf("%d GPUs are watched", gpus)
		}
	}, nil); err != nil {
		t.Error(err)
	}
	for _, f := range report.Findings {
		if f.ID == "gpu.nvml" && f.Verdict != check.Skip {
			t.Errorf("it is found %+v", f)
		}
	}
}

// untouchable is a Driver that must not be queried.
type untouchable struct{ *testing.T }

func (u untouchable) Probe(context.Context, func(gpu.Progress)) (gpu.Facts, error) {
	u.Error("NVML is asked")
	return gpu.Facts{}, nil
}

func (u untouchable) Watch(context.Context, func(int), func(gpu.Event)) error {
	u.Error("NVML is watched")
	return nil
}

func (u untouchable) Close(context.Context) error { return nil }

// TestCUDAIsAsked verifies that CUDA's driver is queried once per inspection, after all GPUs are
// attached, and that its answer counts if the job uses GPUs.
func TestCUDAIsAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		want  fitness.Expectation
		asked int
		found bool
	}{
		"all":      {fitness.Expectation{Count: -1}, 1, true},
		"none":     {fitness.Expectation{Count: 0}, 0, false},
		"the last": {fitness.Expectation{Count: 1, Visible: []gpu.Selector{{Index: 1}}}, 1, true},
	} {
		asked, early := 0, false
		var answered atomic.Bool
		cuda := make(chan struct{})
		if tc.asked == 0 {
			close(cuda)
		}
		// NVML answers after CUDA's driver was queried.
		driver := &fakeGPUs{probe: func(_ context.Context, tell func(gpu.Progress)) error {
			tell(gpu.Progress{Initialised: 2, Total: 2})
			<-cuda
			answered.Store(true)
			return nil
		}}
		g := &GPUs{Prober: driver, Expect: tc.want, LibraryNamed: true, Root: t.TempDir()}
		g.CUDA = func(context.Context) (gpu.CUDAFacts, error) {
			asked++
			early = !answered.Load()
			close(cuda)
			return gpu.CUDAFacts{Init: "UNKNOWN"}, nil
		}
		found := g.Inspect(t.Context(), nil)
		is := slices.ContainsFunc(found, func(f check.Finding) bool { return f.ID == "cuda.init" })
		if asked != tc.asked || is != tc.found || early != (tc.asked > 0) {
			t.Errorf("%s: asked %d times, before NVML has told all: %t; found: %t", name, asked, early, is)
		}
	}
}
