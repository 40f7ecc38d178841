package recording

import (
	"runtime"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// Version is the version of a [Recording]'s JSON format.
const Version = 1

// Recording holds the data and the results of one run of the checks. New returns one without
// private information.
type Recording struct {
	Version  int    `json:"version"`
	Bringupd string `json:"bringupd"` // version of this program
	Platform string `json:"platform"` // operating system and architecture: linux/amd64
	// Facts is the state of the GPUs at the last query, and Expected the state that was required. Both
	// are absent if GPUs were not checked.
	Facts    *gpu.Facts `json:"facts,omitempty"`
	Expected *Expected  `json:"expected,omitempty"`
	// CUDA is the result of the CUDA driver; absent if it was not queried.
	CUDA *cuda.Facts `json:"cuda,omitempty"`
	// Report contains the findings. Its attributes describe the host.
	Report check.Report `json:"report"`
}

// Expected is the required state of the GPUs: a fitness.Expect without the environment.
type Expected struct {
	Count     int        `json:"count"` // -1 if unknown
	CountFrom string     `json:"count_from,omitempty"`
	Visible   []string   `json:"visible"` // entries of CUDA_VISIBLE_DEVICES; null: all GPUs, empty: none
	PCIOrder  bool       `json:"pci_order,omitempty"`
	Mode      check.Mode `json:"mode"`
	Signs     []string   `json:"signs,omitempty"` // signs of GPUs that gpu.Present has found
	Named     bool       `json:"named,omitempty"` // the user has set the path of the NVML library
}

// GPUs holds the state of the GPUs that was read, and the state that was required.
type GPUs struct {
	Facts    *gpu.Facts
	Expected *Expected
	CUDA     *cuda.Facts
}

// New returns a recording of the results of this version of the program. It does not modify its
// arguments.
func New(bringupd string, seen GPUs, report check.Report) Recording {
	r := Recording{
		Version: Version, Bringupd: bringupd, Platform: runtime.GOOS + "/" + runtime.GOARCH, Expected: seen.Expected, CUDA: seen.CUDA,
	}
	if seen.Facts != nil {
		without := anonymous(*seen.Facts)
		r.Facts = &without
	}
	r.Report = discreet(report, r.Facts)
	return r
}
