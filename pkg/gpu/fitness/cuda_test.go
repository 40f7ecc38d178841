package fitness_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

// TestCheckCUDA verifies when the CUDA driver is queried, and the findings about its answers.
func TestCheckCUDA(t *testing.T) {
	eight := 8
	shows := func(n int) gpu.CUDAFacts {
		return gpu.CUDAFacts{Init: gpu.Success, Loaded: "/usr/lib/libcuda.so.570.86.15",
			Count: gpu.Reading[int]{Value: &n}}
	}
	failed := func(why gpu.NVMLReturn) gpu.CUDAFacts { return gpu.CUDAFacts{Init: why, Loaded: "/lib/libcuda.so.1"} }
	listed := func(f gpu.CUDAFacts, list string) gpu.CUDAFacts { f.VisibleDevices = &list; return f }
	all := fitness.Expectation{Count: -1, Mode: check.ModeRequire}
	for _, tc := range []struct {
		name  string
		facts string // of testdata/facts
		want  fitness.Expectation
		shown gpu.CUDAFacts
		says  string // "" if CUDA must not be queried
	}{
		{"all", "h100", all, shows(8), "cuda.init PASS, cuda.devices PASS"},
		{"more than the job's", "h100", fitness.Expectation{Count: 1,
			Visible: []gpu.Selector{{Index: 2}}}, shows(8), "cuda.init PASS, cuda.devices PASS"},
		{"one is missing", "h100", all, shows(7), "cuda.init PASS, cuda.devices FAIL environment"},
		{"one is missing, nobody needs it", "h100", fitness.Expectation{Count: -1}, shows(7),
			"cuda.init PASS, cuda.devices WARN environment"},
		{"the user's list", "h100", all, listed(shows(7), "0,9"), "cuda.init PASS, cuda.devices FAIL user"},
		{"one is lost", "h100-lost", all, shows(7), "cuda.init PASS, cuda.devices PASS"},
		{"MIG", "a100-mig", all, shows(1), "cuda.init PASS, cuda.devices PASS"},
		{"MIG without a device", "a100-mig", all, shows(0), "cuda.init PASS, cuda.devices FAIL environment"},
		{"no count", "h100", all, gpu.CUDAFacts{Init: gpu.Success,
			Count: gpu.Reading[int]{Reason: "UNKNOWN"}}, "cuda.init PASS, cuda.devices UNKNOWN node"},

		{"no library", "h100", all, failed(gpu.LibraryNotFound), "cuda.init FAIL environment"},
		{"hangs", "h100", all, failed(gpu.DriverUnresponsive), "cuda.init FAIL node"},
		{"died", "h100", all, failed(gpu.ProbeDied), "cuda.init UNKNOWN environment"},
		{"no cgo", "h100", all, failed(gpu.NoCgo), "cuda.init SKIP"},
		{"memory error", "h100", all, failed("ECC_UNCORRECTABLE"), "cuda.init FAIL node"},
		{"switches", "h100", all, failed("SYSTEM_NOT_READY"), "cuda.init WAIT environment"},
		{"switches, nobody needs them", "h100", fitness.Expectation{Count: -1},
			failed("SYSTEM_NOT_READY"), "cuda.init WARN environment"},
		{"no device", "h100", all, failed("NO_DEVICE"), "cuda.init FAIL environment"},
		{"no device in the user's list", "h100", all, listed(failed("NO_DEVICE"), ""), "cuda.init FAIL user"},
		{"unknown", "h100", all, failed("CODE_778"), "cuda.init FAIL environment"},

		{"a job without GPUs", "h100", fitness.Expectation{Count: 0}, shows(8), ""},
		{"no driver", "no-driver", all, shows(8), ""},
		{"a GPU hangs", "hangs", all, shows(8), ""},
	} {
		facts := gpu.Facts{Init: gpu.Success, Count: gpu.Reading[int]{Value: &eight},
			GPUs: []gpu.GPU{{Handle: gpu.Success}, {Handle: gpu.DriverUnresponsive}}}
		if tc.facts != "hangs" {
			text, err := os.ReadFile("testdata/facts/" + tc.facts + ".json")
			if err != nil || json.Unmarshal(text, &facts) != nil {
				t.Fatal(err)
			}
		}
		var says []string
		if fitness.CanQueryCUDA(facts, tc.want) {
			for _, f := range fitness.CheckCUDA(tc.shown, facts, tc.want) {
				says = append(says, strings.TrimSpace(f.ID+" "+string(f.Verdict)+" "+string(f.Class)))
				if f.Observed == "" && f.Verdict != check.Pass || (f.Hint == "") != (f.Class == "") {
					t.Errorf("%s: %+v", tc.name, f)
				}
			}
		}
		if got := strings.Join(says, ", "); got != tc.says {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.says)
		}
	}
}
