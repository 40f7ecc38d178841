// Package cuda inspects the CUDA driver, libcuda, as every program that computes on a GPU must:
// NVML may answer, and nvidia-smi work, although cuInit fails. It creates no context, and so uses
// no memory of any GPU.
//
// An inspection needs a process of its own: libcuda may crash, hang, keep threads, and start
// nvidia-modprobe, and it stays loaded until the process ends.
package cuda

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// ResultCode is the result of a call: a CUresult, as numbered in cuda.h, or one of this package's
// own negative codes.
type ResultCode int

// Results that no library returns.
const (
	LibraryNotFound  ResultCode = -1 - iota // the loader finds no libcuda, or cannot load it
	FunctionNotFound                        // the library lacks the function; the call was not made
	NoCgo                                   // this program was built without cgo
	// no answer came in time; never returned within this package
	Unresponsive
	// the querying process has died; never returned within this package
	ProbeDied
)

// Result is the result of a call, with its name: SYSTEM_NOT_READY, without the prefix CUDA_ERROR_.
type Result struct {
	Code ResultCode `json:"code"`
	Name string     `json:"name,omitempty"` // the library's name for it, or ours if it has none
}

// String formats the answer: SYSTEM_NOT_READY (802).
func (a Result) String() string {
	name := cmp.Or(a.Name, knownResults[a.Code].name, "an error without a name")
	if a.Code < 0 {
		return name
	}
	return fmt.Sprintf("%s (%d)", name, a.Code)
}

// Reading is the answer to one query: a value, or the reason why there is none. The zero Reading
// was not queried.
type Reading[T any] struct {
	Value  *T     `json:"value,omitempty"`
	Reason Result `json:"why,omitzero"` // the reason if there is no value
}

// newReading returns a Reading of value if answer is a success. Otherwise the Reading has no value,
// and answer is the reason.
func newReading[T any](answer Result, value T) Reading[T] {
	if answer.Code != 0 {
		return Reading[T]{Reason: answer}
	}
	return Reading[T]{Value: &value}
}

// Get returns the value, and whether there is one.
func (r Reading[T]) Get() (value T, ok bool) {
	if r.Value == nil {
		return value, false
	}
	return *r.Value, true
}

// Facts are the results of one inspection.
type Facts struct {
	// result of cuInit; if its code is not 0 there are no devices
	Init Result `json:"init"`
	// if Init has a negative code: the loader's message, or what happened to the process
	Detail string `json:"detail,omitempty"`

	Library string `json:"library,omitempty"` // the requested file; empty: the loader's choice
	// the loaded file, with links resolved: …/libcuda.so.570.86.15
	Loaded string `json:"loaded,omitempty"`
	// the newest CUDA version that the library supports: 12080 is 12.8
	Driver Reading[int] `json:"driver"`

	Count   Reading[int] `json:"count"`
	Devices []Device     `json:"devices,omitempty"` // sorted by ordinal
	// InaccessiblePairs are the pairs of devices of which one cannot access the memory of the other,
	// or for which that is unknown; all other pairs can.
	InaccessiblePairs []DevicePair `json:"apart,omitempty"`

	// CUDA_VISIBLE_DEVICES of the querying process; nil: not set
	VisibleDevices *string `json:"visible,omitempty"`
	// the kernel has nvidia_uvm; nil: unknown
	UVMLoaded *bool `json:"uvm_loaded,omitempty"`
	// the first is /dev/nvidia-uvm, even if it is missing
	Files []DeviceFile `json:"files,omitempty"`

	Duration time.Duration `json:"took_ns"`
}

// Device is a GPU, or an instance of a partitioned GPU (MIG), as CUDA shows it.
type Device struct {
	Ordinal int `json:"ordinal"`
	// UUID has no prefix GPU- or MIG-: fa4e0003-….
	UUID Reading[string] `json:"uuid"`
	Name Reading[string] `json:"name"`
}

// DevicePair is an ordered pair of devices: Access is whether A can access the memory of B.
type DevicePair struct {
	A      int           `json:"a"` // ordinals
	B      int           `json:"b"`
	Access Reading[bool] `json:"access"`
}

// InspectDriver queries the CUDA driver and inspects the device files below root ("/") that CUDA
// needs. library is the file to load; if it is empty the loader finds one. Calls that take longer
// than a second are named on standard error. Look returns when the library does: after some seconds
// if the GPUs must be initialised, and never if the driver hangs.
func InspectDriver(library, root string) Facts {
	began := time.Now()
	f := Facts{Library: library}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		visible = textutil.SingleLine(visible, maxForeignText)
		f.VisibleDevices = &visible
	}
	queryDriver(&f)
	// The device files are inspected last, because cuInit may have loaded the module and made the
	// files, by means of nvidia-modprobe.
	f.Files, f.UVMLoaded = openDeviceFiles(root), isModuleLoaded(root)
	f.Duration = time.Since(began)
	return f
}

// maxForeignText is the maximum number of characters that are kept of a text from another program:
// enough for a path.
const maxForeignText = 200
