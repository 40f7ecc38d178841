package readiness

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// twoGPUs is a Driver of a node with two that are well, until both are lost.
type twoGPUs struct{}

func (twoGPUs) Probe(context.Context) (gpu.Facts, error) {
	return gpu.Facts{
		Version: gpu.FactsVersion, Init: gpu.Success,
		GPUs: []gpu.GPU{{Index: 0, Handle: gpu.Success}, {Index: 1, Handle: gpu.Success}},
	}, nil
}

func (twoGPUs) Watch(_ context.Context, ready func(int), event func(gpu.Event)) error {
	ready(2)
	for i := range 2 {
		event(gpu.Event{Kind: gpu.KindLost, GPU: i})
	}
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
			g := &GPUs{Driver: twoGPUs{}, Expect: tc.want, Named: true, Root: t.TempDir(), Table: gpu.Xids()}
			g.Look(t.Context())
			var got []gpu.Effect
			err := g.Watch(t.Context(), func(int) {}, func(e gpu.Judged) { got = append(got, e.Effect) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.effects, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
