package fitness

import (
	"cmp"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// Expectation is the required state of a node's GPUs.
type Expectation struct {
	// Count is the number of GPUs that the job should have on this node, or -1 if unknown. As in
	// Slurm, a MIG instance counts as one GPU.
	Count       int
	CountSource string // the flag, variable or line of a file that Count is from

	Visible     []gpu.Selector // from CUDA_VISIBLE_DEVICES; nil: all GPUs, empty: none
	PCIBusOrder bool           // CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA's indices are the same as NVML's

	Mode    check.GPUMode
	Environ []string // the driver process's environment; nil: unknown
	// Signs are the signs of NVIDIA GPUs that gpu.FindNVIDIASigns has found on this node.
	Signs []string
	// LibraryNamed says that the LD_LIBRARY_PATH of the job has NVML.
	LibraryNamed bool
}

// What the sources of a number of GPUs that the user requires contain.
const (
	countKey      = "gpus-per-node" // also in the flag
	countVariable = "BRINGUPD_GPUS_PER_NODE"
)

func (e Expectation) isGivenByUser() bool {
	return e.Count > 0 && (e.CountSource == countVariable || strings.Contains(e.CountSource, countKey))
}

// hasOnlyOtherVendors reports whether the node has no sign of NVIDIA, although it has other GPUs or
// the job needs GPUs.
func (e Expectation) hasOnlyOtherVendors(f gpu.Facts) bool {
	absent := f.Init == gpu.LibraryNotFound || f.Init == gpu.DriverNotLoaded || f.Init == gpu.NoCgo
	return absent && len(e.Signs) == 0 && !e.LibraryNamed && (len(f.OtherGPUs) > 0 || e.NeedsGPUs())
}

// ParseExpectation returns the expectations that follow from the number of GPUs granted on this
// node (-1: unknown) and from the environment. from is the flag or variable that granted is from.
// The caller must set Mode, Signs and LibraryNamed.
func ParseExpectation(granted int, from string, environ []string) (Expectation, error) {
	e := Expectation{Count: granted, CountSource: from, Environ: environ}
	order, _ := envlist.Lookup(environ, "CUDA_DEVICE_ORDER")
	e.PCIBusOrder = order == "PCI_BUS_ID"
	value, set := envlist.Lookup(environ, gpu.VisibleDevicesVariable)
	if !set {
		return e, nil
	}
	var err error
	if e.Visible, err = gpu.ParseVisibleDevices(value); err != nil {
		return Expectation{}, err
	}
	if granted < 0 {
		e.Count, e.CountSource = len(e.Visible), gpu.VisibleDevicesVariable
	}
	return e, nil
}

// MayHaveGPUs reports whether the programs of the job have GPUs on this node: if some are granted or
// in the list of visible GPUs of environ, or, where neither is known (granted is -1), if this process
// may open one.
func MayHaveGPUs(granted int, environ []string) bool {
	if e, err := ParseExpectation(granted, "", environ); err == nil && e.Count >= 0 {
		return e.Count > 0
	}
	return gpu.IsAnyUsable("/")
}

// NeedsGPUs reports whether the job is known to need GPUs.
func (e Expectation) NeedsGPUs() bool {
	return e.Count > 0 || len(e.Visible) > 0 || e.Mode == check.ModeRequire || e.Mode == check.ModeStrict
}

// HasNoGPUs reports whether the job is known to have no GPUs.
func (e Expectation) HasNoGPUs() bool { return e.Count == 0 && !e.NeedsGPUs() }

func (e Expectation) countSourceText() string { return cmp.Or(e.CountSource, "expected") }

// maxTextLength is the maximum number of characters of a foreign text in a finding.
const maxTextLength = 80
