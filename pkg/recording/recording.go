package recording

import (
	"runtime"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// Version is the version of the form that a Recording has as JSON.
const Version = 1

// Recording is what one call of the checks has seen and said. New makes one, which has nothing that must not be told.
type Recording struct {
	Version  int    `json:"version"`
	Bringupd string `json:"bringupd"` // version of the program
	Platform string `json:"platform"` // linux/amd64
	// Facts are what was seen of the GPUs at the last look, and Expected what should have been seen; absent where none
	// was to be looked at.
	Facts    *gpu.Facts `json:"facts,omitempty"`
	Expected *Expected  `json:"expected,omitempty"`
	// CUDA is what CUDA's driver has shown; absent where it was not asked.
	CUDA *cuda.Facts `json:"cuda,omitempty"`
	// Report has what was found, and in its traits what was seen of the host.
	Report check.Report `json:"report"`
}

// Expected is what there should be of GPUs: a fitness.Expect without the environment.
type Expected struct {
	Count     int        `json:"count"` // -1 where nobody says
	CountFrom string     `json:"count_from,omitempty"`
	Visible   []string   `json:"visible"` // entries of CUDA_VISIBLE_DEVICES; null: all, empty: none
	PCIOrder  bool       `json:"pci_order,omitempty"`
	Mode      check.Mode `json:"mode"`
	Signs     []string   `json:"signs,omitempty"` // those that gpu.Present has found
	Named     bool       `json:"named,omitempty"` // whether the user has named the library
}

// GPUs are what was seen of them, and what should have been.
type GPUs struct {
	Facts    *gpu.Facts
	Expected *Expected
	CUDA     *cuda.Facts
}

// New returns a recording of what this version of the program has seen. It leaves what it is given as it is.
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
