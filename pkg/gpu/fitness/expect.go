package fitness

import (
	"cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/process"
)

// Expect is the required state of a node's GPUs.
type Expect struct {
	// Count is the number of GPUs that the job should have on this node, or -1 if unknown. As in
	// Slurm, a MIG instance counts as one GPU.
	Count     int
	CountFrom string // the flag or environment variable that Count is from

	Visible  []gpu.Selector // from CUDA_VISIBLE_DEVICES; nil: all GPUs, empty: none
	PCIOrder bool           // CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA's indices are the same as NVML's

	Mode    check.Mode
	Environ []string // the driver process's environment; nil: unknown
	// Signs are the signs of NVIDIA GPUs that gpu.Present has found on this node.
	Signs []string
	// Named says that the user has set the path of the NVML library.
	Named bool
}

// foreign reports whether the node has no sign of NVIDIA, although it has other GPUs or the job
// needs GPUs.
func (e Expect) foreign(f gpu.Facts) bool {
	absent := f.Init == gpu.LibraryNotFound || f.Init == gpu.DriverNotLoaded || f.Init == gpu.NoCgo
	return absent && len(e.Signs) == 0 && !e.Named && (len(f.Others) > 0 || e.Needed())
}

// ParseExpected returns the expectations that follow from the number of GPUs granted on this node
// (-1: unknown) and from the environment. from is the flag or variable that granted is from. The
// caller must set Mode, Signs and Named.
func ParseExpected(granted int, from string, environ []string) (Expect, error) {
	e := Expect{Count: granted, CountFrom: from, Environ: environ}
	order, _ := process.LookupEnv(environ, "CUDA_DEVICE_ORDER")
	e.PCIOrder = order == "PCI_BUS_ID"
	value, set := process.LookupEnv(environ, gpu.VisibleVariable)
	if !set {
		return e, nil
	}
	var err error
	if e.Visible, err = gpu.ParseVisible(value); err != nil {
		return Expect{}, err
	}
	if granted < 0 {
		e.Count, e.CountFrom = len(e.Visible), gpu.VisibleVariable
	}
	return e, nil
}

// Needed reports whether the job is known to need GPUs.
func (e Expect) Needed() bool {
	return e.Count > 0 || len(e.Visible) > 0 || e.Mode == check.ModeRequire || e.Mode == check.ModeStrict
}

// Forgone reports whether the job is known to have no GPUs.
func (e Expect) Forgone() bool { return e.Count == 0 && !e.Needed() }

// from returns the source of the expected number of GPUs, for messages.
func (e Expect) from() string { return cmp.Or(e.CountFrom, "expected") }

// shown is the maximum number of characters of a foreign text in a finding.
const shown = 80
