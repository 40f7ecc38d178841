package readiness

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// twoGPUs is a Driver of a node with two that are well, until both are lost.
type twoGPUs struct{ closed bool }

func (*twoGPUs) Probe(_ context.Context, tell func(gpu.Progress)) (gpu.Facts, error) {
	tell(gpu.Progress{Came: 1, Of: 2, Waits: "nvmlDeviceGetHandleByIndex_v2 of GPU 1"})
	return gpu.Facts{
		Version: gpu.FactsVersion, Init: gpu.Success,
		GPUs: []gpu.GPU{{Index: 0, Handle: gpu.Success}, {Index: 1, Handle: gpu.Success}},
	}, nil
}

func (*twoGPUs) Watch(_ context.Context, ready func(int), event func(gpu.Event), _ func([]gpu.Tally)) error {
	ready(2)
	for i := range 2 {
		event(gpu.Event{Kind: gpu.KindLost, GPU: i})
	}
	return nil
}

func (two *twoGPUs) Close(context.Context) error {
	two.closed = true
	return nil
}

// On a node that several jobs share, the end of a GPU ends the job that has it.
func TestWatchOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		want    fitness.Expect
		effects []gpu.Effect
	}{
		"both are ours": {fitness.Expect{Count: -1}, []gpu.Effect{gpu.EffectFatal, gpu.EffectFatal}},
		"one is":        {fitness.Expect{Count: 1, Visible: []gpu.Selector{{Index: 1}}}, []gpu.Effect{gpu.EffectIgnore, gpu.EffectFatal}},
		"none is":       {fitness.Expect{Count: 0}, []gpu.Effect{gpu.EffectIgnore, gpu.EffectIgnore}},
	} {
		t.Run(name, func(t *testing.T) {
			driver := &twoGPUs{}
			g := &GPUs{Driver: driver, Expect: tc.want, Named: true, Root: t.TempDir(), Table: gpu.Xids()}
			g.Look(t.Context(), func([]check.Finding) {})
			if driver.closed {
				t.Error("the GPUs are let go of before they are watched")
			}
			var got []gpu.Effect
			err := g.Watch(t.Context(), func(int) {}, func(e gpu.Judged) { got = append(got, e.Effect) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.effects, got); diff != "" || !driver.closed {
				t.Errorf("%s; closed: %t", diff, driver.closed)
			}
		})
	}
}

// A driver that attaches GPUs slowly is waited for, and it is told how far it has got.
func TestGPUsThatComeSlowly(t *testing.T) {
	g := &GPUs{Driver: &twoGPUs{}, Expect: fitness.Expect{Count: -1}, Named: true, Root: t.TempDir(), Table: gpu.Xids()}
	node := &Checks{Config: Config{Config: check.Config{Policy: check.Policy{Mode: check.ModeAuto}}}, parts: []part{g}, gpus: g}
	var told []check.Finding
	report := node.Await(t.Context(), func(report check.Report) { told = append(told, report.Findings...) })
	if len(told) != 1 || told[0].ID != "gpu.nvml" || told[0].Verdict != check.Wait ||
		told[0].Observed != "1 of 2 GPUs have come; waiting for nvmlDeviceGetHandleByIndex_v2 of GPU 1" {
		t.Errorf("it tells %+v", told)
	}
	if report.Verdict == check.Wait {
		t.Errorf("it ends with %+v", report)
	}
}

// A look that is given up is waited for a while: what it waits for must not be cut short.
func TestLookGivenUp(t *testing.T) {
	driver := &neverGPUs{}
	g := &GPUs{Driver: driver, Expect: fitness.Expect{Count: -1}, Named: true, Root: t.TempDir()}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the job is over"))
	if found := g.Look(ctx, nil); len(found) != 1 || found[0].Verdict != check.Unknown || !driver.closed {
		t.Errorf("%+v; closed: %t", found, driver.closed)
	}
}

// neverGPUs never answer.
type neverGPUs struct{ twoGPUs }

func (*neverGPUs) Probe(ctx context.Context, _ func(gpu.Progress)) (gpu.Facts, error) {
	<-ctx.Done()
	return gpu.Facts{}, context.Cause(ctx)
}
