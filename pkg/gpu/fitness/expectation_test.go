package fitness

import (
	"slices"
	"testing"

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
		{"none granted", 0, "SLURM_GPUS_ON_NODE", []string{"CUDA_VISIBLE_DEVICES=NoDevFiles"}, 0,
			"SLURM_GPUS_ON_NODE", 0, false},
		{"the last counts", -1, "", []string{"CUDA_VISIBLE_DEVICES=7", "CUDA_VISIBLE_DEVICES=1,2"},
			2, "CUDA_VISIBLE_DEVICES", 2, false},
	} {
		e, err := ParseExpectation(tc.granted, tc.from, tc.environ)
		visible := len(e.Visible)
		if e.Visible == nil {
			visible = -1
		}
		if err != nil || e.Count != tc.count || e.CountSource != tc.by || visible != tc.visible ||
			e.PCIBusOrder != tc.order {
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
	for name, want := range map[string]string{
		"h100": "x.gpu_model=NVIDIA H100 80GB HBM3 x.gpu_count=8 x.driver=570.86.15 x.cuda=12.8 " +
			"x.vbios=96.00.A5.00.01 x.gsp=570.86.15 x.memory=80 GiB x.nvlink=18 x.mig=off ",
		"mixed": "x.gpu_model=NVIDIA A100 80GB PCIe, NVIDIA L40S x.gpu_count=3 x.driver=570.86.15 x.cuda=12.8 " +
			"x.vbios=92.00.9E.00.01, 95.02.66.00.02 x.gsp=570.86.15 x.memory=45 GiB, 80 GiB x.nvlink=0 x.mig=off ",
		"no-library": "",
	} {
		f := load(t, name)
		for range 2 {
			got := ""
			for _, a := range Attributes(f, Expectation{Count: -1}) {
				got += a.ID + "=" + a.Value + " "
			}
			if got != want {
				t.Errorf("%s: %s", name, got)
			}
			slices.Reverse(f.GPUs)
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
		{"two are visible", Expectation{Count: -1, Visible: []gpu.Selector{{Index: 0}, {Index: 1}},
			PCIBusOrder: true}, "", "2"},
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
