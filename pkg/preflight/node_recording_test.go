package preflight

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
)

var update = flag.Bool("update", false, "write testdata/recording.json anew")

// secrets must not appear in any recording of the node below.
var secrets = []string{"4711", "4712", "4713", "alice", "n7", "hunter2"}

func reading[T any](value T) gpu.Reading[T] { return gpu.Reading[T]{Value: &value} }

// node returns the facts and findings of a node with a GPU that other users use.
func node() (gpu.Facts, check.Report) {
	of := func(procs ...gpu.Process) gpu.Reading[[]gpu.Process] { return reading(procs) }
	g := gpu.GPU{Handle: gpu.Success, UUID: reading("GPU-a"), Bus: reading("0000:3b:00.0")}
	g.Memory = reading(gpu.Memory{Total: 80 << 30, Used: 40 << 30})
	g.Processes = of(gpu.Process{PID: 4711, Used: 30 << 30, Name: "/home/alice/train"},
		gpu.Process{PID: 4712, Used: 8 << 30},
		gpu.Process{PID: 4713, Unknown: true, Name: "nvidia-cuda-mps-server"})
	g.GraphicsProcesses = of(gpu.Process{PID: 4711, Name: "alice"})
	g.MIGInstances = []gpu.MIGInstance{{UUID: "MIG-a", Processes: of(gpu.Process{PID: 4711, Name: "alice"})}}
	other := gpu.GPU{Index: 1, Handle: gpu.GPUIsLost}
	device := &check.Device{Index: 0, UUID: "GPU-a", Bus: "0000:3b:00.0"}
	return gpu.Facts{Version: gpu.FactsVersion, Init: gpu.Success, Count: reading(2),
			GPUs: []gpu.GPU{g, other}}, check.Report{
			Version: check.ReportVersion, Host: "n7", NodeIndex: -1,
			At: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), Took: time.Second,
			Verdict: check.Fail, Attributes: []check.Attribute{{ID: check.AttrKernel, Value: "6.8.0"}},
			Findings: []check.Finding{
				{ID: "gpu.busy", Device: device, Verdict: check.Fail,
					Observed: "process 4711 (/home/alice/train) with 30 GiB", Class: check.ClassNode},
				{ID: "active.test", Verdict: check.Warn, Observed: "hunter2", Lines: []string{"alice"}},
				{ID: "gpu.remap", Verdict: check.Pass, Observed: "2 of 2"},
			},
		}
}

// TestRecording compares the format with that in testdata: recordings of older versions must stay
// readable.
func TestRecording(t *testing.T) {
	facts, report := node()
	before, _ := json.Marshal(facts)
	checks := &NodeChecks{NodeConfig: NodeConfig{Program: "v1.2.3"}, gpus: &GPUs{
		Root: t.TempDir(), facts: facts, cudaFacts: &gpu.CUDAFacts{Init: "UNKNOWN"},
		Expect: fitness.Expectation{Count: 2, CountSource: "--gpus-per-node", Mode: check.ModeAuto},
	}}
	recorded, err := json.MarshalIndent(checks.NewRecording(report), "", "  ")
	must(t, err)
	for _, secret := range secrets {
		if bytes.Contains(recorded, []byte(secret)) {
			t.Errorf("%q is told", secret)
		}
	}
	recorded = append(bytes.Replace(recorded, []byte("linux/arm64"), []byte("linux/amd64"), 1), '\n')
	if *update {
		must(t, os.WriteFile("testdata/recording.json", recorded, 0o644))
	}
	if want, err := os.ReadFile("testdata/recording.json"); err != nil || !bytes.Equal(recorded, want) {
		t.Errorf("%v: %s", err, cmp.Diff(string(want), string(recorded)))
	}
	if after, _ := json.Marshal(facts); !bytes.Equal(before, after) ||
		report.Findings[1].Lines == nil || report.Host != "n7" {
		t.Errorf("what was given has changed: %s", cmp.Diff(string(before), string(after)))
	}
	if bare := new(NodeChecks).NewRecording(report); bare.Facts != nil ||
		bare.Report.Findings[0].Observed != omittedText {
		t.Errorf("without facts it is %+v", bare)
	}
}
