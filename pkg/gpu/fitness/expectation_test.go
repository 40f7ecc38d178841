package fitness

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

func TestParseExpected(t *testing.T) {
	for _, tc := range []struct {
		name    string
		granted int
		from    string
		environ []string
		count   int
		by      string
		visible int // -1: all
		order   bool
	}{
		{"nothing told", -1, "", nil, -1, "", -1, false},
		{"granted", 8, "SLURM_STEP_GPUS", []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, 8, "SLURM_STEP_GPUS", -1, true},
		{"listed", -1, "", []string{"CUDA_VISIBLE_DEVICES=1,2"}, 2, "CUDA_VISIBLE_DEVICES", 2, false},
		{"both", 8, "--gpus-per-node", []string{"CUDA_VISIBLE_DEVICES=1,2"}, 8, "--gpus-per-node", 2, false},
		{"none listed", -1, "", []string{"CUDA_VISIBLE_DEVICES="}, 0, "CUDA_VISIBLE_DEVICES", 0, false},
		{"none granted", 0, "SLURM_GPUS_ON_NODE", []string{"CUDA_VISIBLE_DEVICES=NoDevFiles"}, 0, "SLURM_GPUS_ON_NODE", 0, false},
		{"the last counts", -1, "", []string{"CUDA_VISIBLE_DEVICES=7", "CUDA_VISIBLE_DEVICES=1,2"}, 2, "CUDA_VISIBLE_DEVICES", 2, false},
	} {
		e, err := ParseExpectation(tc.granted, tc.from, tc.environ)
		visible := len(e.Visible)
		if e.Visible == nil {
			visible = -1
		}
		if err != nil || e.Count != tc.count || e.CountSource != tc.by || visible != tc.visible || e.PCIBusOrder != tc.order {
			t.Errorf("%s: %+v, %v", tc.name, e, err)
		}
	}
	if _, err := ParseExpectation(8, "", []string{"CUDA_VISIBLE_DEVICES=0-3"}); err == nil {
		t.Error("a range is taken")
	}
}

// TestTraits verifies that equal nodes have equal traits, regardless of the order of their GPUs and
// of values that identify one node.
func TestTraits(t *testing.T) {
	for name, want := range map[string][]check.Attribute{
		"h100": {{ID: "x.gpu_model", Value: "NVIDIA H100 80GB HBM3"}, {ID: "x.gpu_count", Value: "8"}, {ID: "x.driver", Value: "570.86.15"}, {ID: "x.cuda", Value: "12.8"},
			{ID: "x.vbios", Value: "96.00.A5.00.01"}, {ID: "x.gsp", Value: "570.86.15"}, {ID: "x.memory", Value: "80 GiB"},
			{ID: "x.nvlink", Value: "18"}, {ID: "x.mig", Value: "off"}},
		"hgx-h100": {{ID: "x.gpu_model", Value: "NVIDIA H100 80GB HBM3"}, {ID: "x.gpu_count", Value: "8"}, {ID: "x.driver", Value: "580.105.08"}, {ID: "x.cuda", Value: "13.0"},
			{ID: "x.vbios", Value: "96.00.99.00.01"}, {ID: "x.gsp", Value: "580.105.08"}, {ID: "x.memory", Value: "80 GiB"},
			{ID: "x.nvlink", Value: "18"},
			{ID: "x.mig", Value: "off"}},
		"gb200": {{ID: "x.gpu_model", Value: "NVIDIA GB200"}, {ID: "x.gpu_count", Value: "4"}, {ID: "x.driver", Value: "580.65.06"}, {ID: "x.cuda", Value: "13.0"},
			{ID: "x.vbios", Value: "97.00.82.00.18"}, {ID: "x.gsp", Value: "580.65.06"}, {ID: "x.memory", Value: "185 GiB"},
			{ID: "x.nvlink", Value: "18"}, {ID: "x.mig", Value: "off"}},
		"mixed": {{ID: "x.gpu_model", Value: "NVIDIA A100 80GB PCIe, NVIDIA L40S"}, {ID: "x.gpu_count", Value: "3"}, {ID: "x.driver", Value: "570.86.15"}, {ID: "x.cuda", Value: "12.8"},
			{ID: "x.vbios", Value: "92.00.9E.00.01, 95.02.66.00.02"}, {ID: "x.gsp", Value: "570.86.15"}, {ID: "x.memory", Value: "45 GiB, 80 GiB"},
			{ID: "x.nvlink", Value: "0"}, {ID: "x.mig", Value: "off"}},
		"no-library": nil,
	} {
		f := load(t, name)
		if diff := cmp.Diff(want, Attributes(f, Expectation{Count: -1})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		slices.Reverse(f.GPUs)
		if diff := cmp.Diff(want, Attributes(f, Expectation{Count: -1})); diff != "" {
			t.Errorf("%s backwards:\n%s", name, diff)
		}
	}
	lost := Attributes(load(t, "h100-lost"), Expectation{Count: -1})
	if !slices.Contains(lost, check.Attribute{ID: "x.gpu_count", Value: "7"}) {
		t.Errorf("a lost GPU counts: %v", lost)
	}
}

// TestTraitsOfTheJob verifies that nodes are compared by the GPUs that the job uses.
func TestTraitsOfTheJob(t *testing.T) {
	for _, tc := range []struct {
		name        string
		want        Expectation
		model, size string
	}{
		{"all", Expectation{Count: -1}, "NVIDIA A100 80GB PCIe, NVIDIA L40S", "3"},
		{"none", Expectation{Count: 0}, "", ""},
		{"two are visible", Expectation{Count: -1, Visible: []gpu.Selector{{Index: 0}, {Index: 1}}, PCIBusOrder: true}, "", "2"},
		{"fewer than there are", Expectation{Count: 2}, "NVIDIA A100 80GB PCIe, NVIDIA L40S", "2"},
		{"more than there are", Expectation{Count: 8}, "NVIDIA A100 80GB PCIe, NVIDIA L40S", "3"},
	} {
		got := make(map[string]string)
		for _, trait := range Attributes(load(t, "mixed"), tc.want) {
			got[trait.ID] = trait.Value
		}
		if got["x.gpu_count"] != tc.size || tc.model != "" && got["x.gpu_model"] != tc.model {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestConcerns verifies that events of GPUs of other jobs do not end a job, nor faults that existed
// before it began.
func TestConcerns(t *testing.T) {
	f := load(t, "h100-lost")
	lost := slices.IndexFunc(f.GPUs, func(g gpu.GPU) bool { return g.Handle != gpu.Success })
	uuid, _ := f.GPUs[1].UUID.Get()
	ours := Expectation{Count: -1, Visible: []gpu.Selector{{Index: 0}, {Index: 1}}}
	for _, tc := range []struct {
		name  string
		want  Expectation
		event gpu.Event
		is    bool
	}{
		{"all are the job's", Expectation{Count: -1}, gpu.Event{GPU: 7}, true},
		{"lost before", Expectation{Count: -1}, gpu.Event{GPU: lost}, false},
		{"ours", ours, gpu.Event{GPU: 1}, true},
		{"ours by its UUID", ours, gpu.Event{GPU: -1, UUID: uuid}, true},
		{"another's", ours, gpu.Event{GPU: 7}, false},
		{"another's with a UUID", ours, gpu.Event{GPU: 7, UUID: "GPU-other"}, false},
		{"nobody knows whose", ours, gpu.Event{GPU: -1}, true},
		{"the job has none", Expectation{Count: 0}, gpu.Event{GPU: 0}, false},
	} {
		if got := ConcernsJob(f, tc.want, tc.event); got != tc.is {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.is)
		}
	}
}
