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

	"github.com/bringupd/bringupd/pkg/prose"
)

// Code is the result of a call: a CUresult, as numbered in cuda.h, or one of this package's own
// negative codes.
type Code int

// Results that no library returns.
const (
	LibraryNotFound  Code = -1 - iota // the loader finds no libcuda, or cannot load it
	FunctionNotFound                  // the library lacks the function; the call was not made
	NoCgo                             // this program was built without cgo
	Unresponsive                      // no answer came in time; never returned within this package
	Died                              // the querying process has died; never returned within this package
)

// Answer is the result of a call, with its name: SYSTEM_NOT_READY, without the prefix CUDA_ERROR_.
type Answer struct {
	Code Code   `json:"code"`
	Name string `json:"name,omitempty"` // the library's name for it, or ours if it has none
}

// String formats the answer: SYSTEM_NOT_READY (802).
func (a Answer) String() string {
	name := cmp.Or(a.Name, answers[a.Code].name, "an error without a name")
	if a.Code < 0 {
		return name
	}
	return fmt.Sprintf("%s (%d)", name, a.Code)
}

// Reading is the answer to one query: a value, or the reason why there is none. The zero Reading
// was not queried.
type Reading[T any] struct {
	Value *T     `json:"value,omitempty"`
	Why   Answer `json:"why,omitzero"` // the reason if there is no value
}

// reading returns a Reading of value if answer is a success. Otherwise the Reading has no value,
// and answer is the reason.
func reading[T any](answer Answer, value T) Reading[T] {
	if answer.Code != 0 {
		return Reading[T]{Why: answer}
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
	Init   Answer `json:"init"`             // result of cuInit; if its code is not 0 there are no devices
	Detail string `json:"detail,omitempty"` // if Init has a negative code: the loader's message, or what happened to the process

	Library string       `json:"library,omitempty"` // the requested file; empty: the loader's choice
	Loaded  string       `json:"loaded,omitempty"`  // the loaded file, with links resolved: …/libcuda.so.570.86.15
	Driver  Reading[int] `json:"driver"`            // the newest CUDA version that the library supports: 12080 is 12.8

	Count   Reading[int] `json:"count"`
	Devices []Device     `json:"devices,omitempty"` // sorted by ordinal
	// Apart are the pairs of devices of which one cannot access the memory of the other, or for which
	// that is unknown; all other pairs can.
	Apart []Pair `json:"apart,omitempty"`

	Visible *string `json:"visible,omitempty"`    // CUDA_VISIBLE_DEVICES of the querying process; nil: not set
	Module  *bool   `json:"uvm_loaded,omitempty"` // the kernel has nvidia_uvm; nil: unknown
	Files   []File  `json:"files,omitempty"`      // the first is /dev/nvidia-uvm, even if it is missing

	Took time.Duration `json:"took_ns"`
}

// Device is a GPU, or an instance of a partitioned GPU (MIG), as CUDA shows it.
type Device struct {
	Ordinal int `json:"ordinal"`
	// UUID has no prefix GPU- or MIG-: fa4e0003-….
	UUID Reading[string] `json:"uuid"`
	Name Reading[string] `json:"name"`
}

// Pair is an ordered pair of devices: Access is whether A can access the memory of B.
type Pair struct {
	A      int           `json:"a"` // ordinals
	B      int           `json:"b"`
	Access Reading[bool] `json:"access"`
}

// Look queries the CUDA driver and inspects the device files below root ("/") that CUDA needs.
// library is the file to load; if it is empty the loader finds one. Calls that take longer than a
// second are named on standard error. Look returns when the library does: after some seconds if the
// GPUs must be initialised, and never if the driver hangs.
func Look(library, root string) Facts {
	began := time.Now()
	f := Facts{Library: library}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		visible = prose.Line(visible, shown)
		f.Visible = &visible
	}
	ask(&f)
	// The device files are inspected last, because cuInit may have loaded the module and made the
	// files, by means of nvidia-modprobe.
	f.Files, f.Module = files(root), module(root)
	f.Took = time.Since(began)
	return f
}

// shown is the maximum number of characters that are kept of a text from another program: enough
// for a path.
const shown = 200
