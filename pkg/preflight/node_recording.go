package preflight

import (
	"runtime"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// RecordingVersion is the version of a [Recording]'s JSON format.
const RecordingVersion = 1

// Recording holds the data and the results of one run of the checks, without private information.
type Recording struct {
	Version  int    `json:"version"`
	Bringupd string `json:"bringupd"` // version of this program
	Platform string `json:"platform"` // operating system and architecture: linux/amd64
	// Facts is the state of the GPUs at the last query, and Expected the state that was required. Both
	// are absent if GPUs were not checked.
	Facts    *gpu.Facts    `json:"facts,omitempty"`
	Expected *ExpectedGPUs `json:"expected,omitempty"`
	// CUDA is the result of the CUDA driver; absent if it was not queried.
	CUDA *gpu.CUDAFacts `json:"cuda,omitempty"`
	// Report contains the findings. Its attributes describe the host.
	Report check.Report `json:"report"`
}

// ExpectedGPUs is the required state of the GPUs: a fitness.Expectation without the environment.
type ExpectedGPUs struct {
	Count     int    `json:"count"` // -1 if unknown
	CountFrom string `json:"count_from,omitempty"`
	// entries of CUDA_VISIBLE_DEVICES; null: all GPUs, empty: none
	Visible  []string      `json:"visible"`
	PCIOrder bool          `json:"pci_order,omitempty"`
	Mode     check.GPUMode `json:"mode"`
	// signs of GPUs that gpu.FindNVIDIASigns has found
	Signs []string `json:"signs,omitempty"`
	Named bool     `json:"named,omitempty"` // LD_LIBRARY_PATH has NVML
}

// NewRecording returns a recording of the last results for a bug report. report must be the report
// of the same results.
func (c *NodeChecks) NewRecording(report check.Report) Recording {
	var seen Recording
	if c.gpus != nil {
		seen = c.gpus.recordingData()
	}
	seen.Version, seen.Bringupd = RecordingVersion, c.Program
	seen.Platform = runtime.GOOS + "/" + runtime.GOARCH
	seen.Report = redactReport(report)
	return seen
}
