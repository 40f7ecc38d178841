package fitness

import (
	"cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/process"
)

// Expect is what there should be on a node.
type Expect struct {
	// Count is how many GPUs the job should have here; -1 where nobody says. An instance of a GPU that is cut up (MIG)
	// counts as one, as it does for Slurm.
	Count     int
	CountFrom string // the flag or the variable that says so

	Visible  []gpu.Selector // by CUDA_VISIBLE_DEVICES; nil: all of them, empty: none
	PCIOrder bool           // CUDA_DEVICE_ORDER=PCI_BUS_ID: the indices are NVML's

	Mode    check.Mode
	Environ []string // that the driver is to have; nil: not known
	// Signs are those that Present finds on this node.
	Signs []string
	// Named is whether the user has named NVIDIA's library.
	Named bool
}

// foreign reports whether nothing on the node shows NVIDIA, although GPUs are there or expected.
func (e Expect) foreign(f gpu.Facts) bool {
	absent := f.Init == gpu.LibraryNotFound || f.Init == gpu.DriverNotLoaded || f.Init == gpu.NoCgo
	return absent && len(e.Signs) == 0 && !e.Named && (len(f.Others) > 0 || e.Needed())
}

// ParseExpected returns what there should be by the number of GPUs that are granted to this node (-1: not told; from
// names the flag or the variable), and by the environment. The mode and the signs are the caller's to add.
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

// Needed tells whether the job can't do without GPUs, as far as anybody says.
func (e Expect) Needed() bool {
	return e.Count > 0 || len(e.Visible) > 0 || e.Mode == check.ModeRequire || e.Mode == check.ModeStrict
}

// Forgone tells whether somebody says that the job has no GPU.
func (e Expect) Forgone() bool { return e.Count == 0 && !e.Needed() }

// from names who says how many GPUs there should be.
func (e Expect) from() string { return cmp.Or(e.CountFrom, "expected") }

// shown is how many characters are shown of what somebody else has written.
const shown = 80
