package readiness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// namedGPUs is a Driver of a node with two whose names are known.
type namedGPUs struct{ twoGPUs }

func (*namedGPUs) Probe(context.Context, func(gpu.Progress)) (gpu.Facts, error) {
	facts := gpu.Facts{Version: gpu.FactsVersion, Init: gpu.Success}
	for i, uuid := range []string{"GPU-fa4e0000-0000-0000-0000-000000000000", "GPU-fa4e0001-0000-0000-0000-000000000000"} {
		facts.GPUs = append(facts.GPUs, gpu.GPU{Index: i, Handle: gpu.Success, UUID: gpu.Reading[string]{Value: &uuid}})
	}
	return facts, nil
}

// shift is a worker whose second GPU is so fast; the first one makes 50 GB/s.
type shift struct {
	second float64
	err    error
	asked  [][]string
	long   bool
}

func (s *shift) Work(_ context.Context, uuids []string, long bool) (cuda.Worked, error) {
	s.asked, s.long = append(s.asked, uuids), long
	w := cuda.Worked{Took: 1}
	for i, uuid := range uuids {
		rate := []float64{50, s.second}[i]
		w.GPUs = append(w.GPUs, cuda.Effort{To: &rate, Device: cuda.Device{
			Ordinal: i, UUID: cuda.Reading[string]{Value: new(strings.TrimPrefix(uuid, "GPU-"))}, Name: cuda.Reading[string]{Value: new("H100")},
		}})
	}
	return w, s.err
}

func TestPutToWork(t *testing.T) {
	sick := &script{shows: [][]check.Finding{{finding("net.ib", check.Fail)}}}
	for _, tc := range []struct {
		name    string
		work    check.Work
		second  float64
		err     error
		nodes   int
		other   part
		mode    check.Mode
		asked   int
		figures int
		want    string // of active.gpu_copy
	}{
		{"nobody asks for it", "", 50, nil, 0, nil, check.ModeAuto, 0, 0, ""},
		{"all is well", check.WorkShort, 50, nil, 0, nil, check.ModeAuto, 1, 2, "PASS 2 GPUs: 50 GB/s"},
		{"for long", check.WorkLong, 50, nil, 1, nil, check.ModeAuto, 1, 2, "PASS 2 GPUs: 50 GB/s"},
		{"one is slow", check.WorkShort, 10, nil, 0, nil, check.ModeAuto, 1, 2, "WARN 10 GB/s to it: 33 % of 30, the median of 2 like it"},
		{"for acceptance", check.WorkShort, 10, nil, 0, nil, check.ModeStrict, 1, 2, "FAIL 10 GB/s to it: 33 % of 30, the median of 2 like it"},
		{"its head will compare", check.WorkShort, 10, nil, 4, nil, check.ModeAuto, 1, 2, ""},
		{"the node is sick already", check.WorkShort, 50, nil, 0, sick, check.ModeAuto, 0, 0, "SKIP not put to work: the node has failed another check"},
		{"it is given up", check.WorkShort, 50, errors.New("the job is over"), 0, nil, check.ModeAuto, 1, 0, "SKIP not put to work: the job is over"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &shift{second: tc.second, err: tc.err}
			g := &GPUs{Driver: &namedGPUs{}, Worker: s, Expect: fitness.Expect{Count: -1}, Named: true, Root: t.TempDir(), Table: gpu.Xids()}
			policy := check.Policy{Mode: tc.mode, Rules: []check.Rule{{Pattern: "gpu.*", Effect: check.EffectOff}}}
			node := &Checks{Config: Config{Config: check.Config{Policy: policy, Work: tc.work}, Nodes: tc.nodes}, parts: []part{g}, gpus: g}
			if tc.other != nil {
				node.parts = append(node.parts, tc.other)
			}
			report := node.Await(t.Context(), nil)
			got := ""
			if at := slices.IndexFunc(report.Findings, func(f check.Finding) bool { return f.ID == "active.gpu_copy" }); at >= 0 {
				got = string(report.Findings[at].Verdict) + " " + report.Findings[at].Observed
			}
			if got != tc.want || len(s.asked) != tc.asked || len(report.Figures) != tc.figures || s.long != (tc.work == check.WorkLong) {
				t.Errorf("got %q and %+v, asked %v", got, report.Figures, s.asked)
			}
		})
	}
}
