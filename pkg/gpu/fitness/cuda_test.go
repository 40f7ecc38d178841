package fitness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

func TestCUDA(t *testing.T) {
	for _, tc := range []struct {
		name         string
		facts        string
		want         Expectation
		asked        bool
		gpus, joined int
		mig, fabric  bool
	}{
		{"eight on switches", "h100", Expectation{Count: 8}, true, 8, 28, false, false},
		{"two of them", "h100", Expectation{Count: 2, Visible: []gpu.Selector{{Index: 0}, {Index: 1}}}, true, 2, 1, false, false},
		{"one is lost", "h100-lost", Expectation{Count: -1}, true, 7, 21, false, false},
		{"a rack", "gb200", Expectation{Count: 4}, true, 4, 6, false, true},
		{"cut up", "a100-mig", Expectation{Count: -1}, true, 2, 0, true, false},
		{"cards on PCIe", "l40s", Expectation{Count: -1}, true, 4, 0, false, false},
		{"a job without", "h100", Expectation{Count: 0}, false, 0, 0, false, false},
		{"no driver", "no-driver", Expectation{Count: 8}, false, 0, 0, false, false},
	} {
		f := load(t, tc.facts)
		got, asked := ExpectedCUDA(f, tc.want)
		if asked != tc.asked || len(got.GPUs) != tc.gpus || len(got.NVLinkPairs) != tc.joined || got.Partitioned != tc.mig || got.MultiNodeFabric != tc.fabric {
			t.Errorf("%s: %+v, %t", tc.name, got, asked)
		}
		if asked && (got.NeedsGPUs != (tc.want.Count > 0) || got.Driver == "") {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	hangs := load(t, "h100")
	hangs.GPUs[5] = gpu.GPU{Index: 5, Handle: gpu.DriverUnresponsive}
	if _, asked := ExpectedCUDA(hangs, Expectation{Count: 8}); asked {
		t.Error("CUDA is asked where a GPU hangs")
	}
	got, _ := ExpectedCUDA(load(t, "h100"), Expectation{Count: 1, Visible: []gpu.Selector{{Index: 2}}})
	want := cuda.Expectation{NeedsGPUs: true, Driver: "570.86.15", GPUs: []check.Device{{Index: 2, UUID: gpu2, Bus: "0000:52:00.0"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
