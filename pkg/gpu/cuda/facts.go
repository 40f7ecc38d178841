// Package cuda looks at CUDA's driver, libcuda, as every program that computes on a GPU has to: NVML may answer, and
// nvidia-smi work, where cuInit fails. It takes no context, and so no memory of any GPU.
//
// A look belongs in a process of its own: libcuda may crash, hang, keep threads, and start nvidia-modprobe, and it
// stays loaded until the process ends.
package cuda

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Code is what a call has returned: a CUresult, as cuda.h numbers them, or one of ours, below 0.
type Code int

// What no library returns.
const (
	LibraryNotFound  Code = -1 - iota // the loader finds no libcuda, or can't load it
	FunctionNotFound                  // the library lacks the function; the call was not made
	NoCgo                             // this program was built without cgo
	Unresponsive                      // no answer came in time; nobody within this package returns it
	Died                              // the process that asked has died; likewise
)

// Answer is what a call has returned, with its name: SYSTEM_NOT_READY, without CUDA_ERROR_ before it.
type Answer struct {
	Code Code   `json:"code"`
	Name string `json:"name,omitempty"` // the library's own, as far as it has one
}

// String returns the answer for people: SYSTEM_NOT_READY (802).
func (a Answer) String() string {
	name := cmp.Or(a.Name, answers[a.Code].name, "an error without a name")
	if a.Code < 0 {
		return name
	}
	return fmt.Sprintf("%s (%d)", name, a.Code)
}

// Reading is what one question was answered: a value, or why there is none. The zero Reading was not asked.
type Reading[T any] struct {
	Value *T     `json:"value,omitempty"`
	Why   Answer `json:"why,omitzero"` // where there is no value
}

// reading is one of that value, if the call that should have set it went well.
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

// Facts are what one look has seen.
type Facts struct {
	Init   Answer `json:"init"`             // of cuInit; where its code is not 0 there are no devices
	Detail string `json:"detail,omitempty"` // where Init is one of ours: the loader's words, or what became of the process

	Library string       `json:"library,omitempty"` // the file that was asked for; empty: the loader's choice
	Loaded  string       `json:"loaded,omitempty"`  // the file that was loaded, without links: …/libcuda.so.570.86.15
	Driver  Reading[int] `json:"driver"`            // the newest CUDA that the library runs: 12080 is 12.8

	Count   Reading[int] `json:"count"`
	Devices []Device     `json:"devices,omitempty"` // by ordinal
	// Apart are the pairs of devices of which the one does not reach the memory of the other, or nobody knows; all
	// other pairs do.
	Apart []Pair `json:"apart,omitempty"`

	Visible *string `json:"visible,omitempty"`    // CUDA_VISIBLE_DEVICES of the process that asked; nil: not set
	Module  *bool   `json:"uvm_loaded,omitempty"` // the kernel has nvidia_uvm; nil: not known
	Files   []File  `json:"files,omitempty"`      // /dev/nvidia-uvm first, whether it is there or not

	Took time.Duration `json:"took_ns"`
}

// Device is one GPU, or one instance of a GPU that is cut up (MIG), as CUDA shows it.
type Device struct {
	Ordinal int `json:"ordinal"`
	// UUID has no GPU- or MIG- before it: fa4e0003-….
	UUID Reading[string] `json:"uuid"`
	Name Reading[string] `json:"name"`
}

// Pair is whether the device A reaches the memory of B.
type Pair struct {
	A      int           `json:"a"` // ordinals
	B      int           `json:"b"`
	Access Reading[bool] `json:"access"`
}

// Look asks the library, a file or, where none is named, what the loader finds, and looks at the device files below
// root ("/") that CUDA needs. A call that takes longer than a second is named on standard error. It returns when the
// library lets it: some seconds where the GPUs have to be woken up, never where the driver is wedged.
func Look(library, root string) Facts {
	began := time.Now()
	f := Facts{Library: library}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		visible = prose.Line(visible, shown)
		f.Visible = &visible
	}
	ask(&f)
	// Only now: cuInit may have loaded the module and made the files, by way of nvidia-modprobe.
	f.Files, f.Module = files(root), module(root)
	f.Took = time.Since(began)
	return f
}

// shown is how many characters are kept of what somebody else has written: long enough for a path.
const shown = 200
