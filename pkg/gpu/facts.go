package gpu

import (
	"cmp"
	"strings"
)

// FactsVersion is the version of the JSON format of Facts.
const FactsVersion = 1

// NVMLReturn is the result of an NVML call, without the prefix NVML_ERROR_: "NOT_SUPPORTED". If the
// library lacks a function, the call is not made, and the result is "FUNCTION_NOT_FOUND".
type NVMLReturn string

// Results with a special meaning. The names are those of nvmlReturn_t in nvml.h.
const (
	Success              NVMLReturn = "SUCCESS"
	Uninitialized        NVMLReturn = "UNINITIALIZED"
	InvalidArgument      NVMLReturn = "INVALID_ARGUMENT"
	NotSupported         NVMLReturn = "NOT_SUPPORTED"
	NoPermission         NVMLReturn = "NO_PERMISSION"
	DriverNotLoaded      NVMLReturn = "DRIVER_NOT_LOADED"
	LibraryNotFound      NVMLReturn = "LIBRARY_NOT_FOUND"
	FunctionNotFound     NVMLReturn = "FUNCTION_NOT_FOUND"
	GPUIsLost            NVMLReturn = "GPU_IS_LOST"
	ResetRequired        NVMLReturn = "RESET_REQUIRED"
	OperatingSystem      NVMLReturn = "OPERATING_SYSTEM"
	LibRMVersionMismatch NVMLReturn = "LIB_RM_VERSION_MISMATCH"
	UnknownError         NVMLReturn = "UNKNOWN"
	// the library is older than the structure
	versionMismatch NVMLReturn = "ARGUMENT_VERSION_MISMATCH"
	deprecated      NVMLReturn = "DEPRECATED"
	// not from NVML: this bringupd was built without cgo
	NoCgo              NVMLReturn = "NO_CGO"
	DriverUnresponsive NVMLReturn = "DRIVER_UNRESPONSIVE" // not from NVML: no answer came in time
	// not from NVML: the querying process has died
	ProbeDied NVMLReturn = "PROBE_DIED"
)

// IsPermanentLoss reports whether the GPU is unusable, and will return this result until an
// administrator acts.
func (why NVMLReturn) IsPermanentLoss() bool { return why == GPUIsLost || why == ResetRequired }

// IsUnavailable reports whether the query was not made, or is not supported. The value is then
// unknown, but nothing is wrong.
func (why NVMLReturn) IsUnavailable() bool {
	return why == "" || why == NotSupported || why == FunctionNotFound
}

// DisplayText returns the result as text, "not asked" if there is none.
func (why NVMLReturn) DisplayText() string { return cmp.Or(string(why), "not queried") }

// Reading is the result of one query: a value, or the reason why there is none. So zero is never
// mistaken for a failed query. The zero Reading was not queried.
type Reading[T any] struct {
	Value  *T         `json:"value,omitempty"`
	Reason NVMLReturn `json:"why,omitempty"` // the reason if there is no value
}

func newReading[T any](value T) Reading[T] { return Reading[T]{Value: &value} }

func missingReading[T any](why NVMLReturn) Reading[T] { return Reading[T]{Reason: why} }

// Get returns the value, and whether there is one.
func (r Reading[T]) Get() (value T, ok bool) {
	if r.Value == nil {
		return value, false
	}
	return *r.Value, true
}

// OrZero returns the value, or zero if there is none.
func (r Reading[T]) OrZero() (value T) {
	value, _ = r.Get()
	return value
}

// Facts are the results of one inspection of all GPUs of a node.
type Facts struct {
	Version int `json:"version"`
	// result of nvmlInit; if it is not SUCCESS the following fields are empty
	Init NVMLReturn `json:"init"`
	// details if Init is not from NVML, or if the library cannot be loaded
	Detail string `json:"detail,omitempty"`

	Driver Reading[string] `json:"driver"` // for example 570.86.15
	// the newest version that the driver supports: 12.8
	CUDA Reading[string] `json:"cuda"`

	Count Reading[int] `json:"count"`
	// sorted by index, including those that cannot be queried
	GPUs []GPU `json:"gpus,omitempty"`
	// NVIDIA's GPUs on the bus, by address, including those that this process may not use
	Slots []PCISlot `json:"slots,omitempty"`
	Pairs []GPUPair `json:"pairs,omitempty"` // each pair of GPUs with a handle, once
	// OtherGPUs are the GPUs of other vendors, if the node has no sign of NVIDIA.
	OtherGPUs []OtherGPU `json:"others,omitempty"`
}

// GPU is one GPU.
type GPU struct {
	Index int `json:"index"`
	// Handle is SUCCESS, or the reason why this GPU cannot be queried. In that case only fields with
	// another source are set.
	Handle NVMLReturn `json:"handle"`
	// Hangs is the call that has not returned, if Handle is DRIVER_UNRESPONSIVE.
	Hangs string `json:"hangs,omitempty"`

	UUID Reading[string] `json:"uuid"`
	Bus  Reading[string] `json:"bus"` // PCI address in the format of sysfs: 0000:3b:00.0
	Name Reading[string] `json:"name"`
	DeviceInfo
	Health
	Interconnect
	Utilization
}

// DeviceInfo describes the hardware and firmware of a GPU and some of its settings.
type DeviceInfo struct {
	VBIOS  Reading[string] `json:"vbios"`
	GSP    Reading[string] `json:"gsp"` // version of the GPU's own firmware
	Memory Reading[Memory] `json:"memory"`
	// the NUMA node that is the GPU's own memory (Grace), not that of the nearest CPUs
	Numa        Reading[int]  `json:"numa"`
	Persistence Reading[bool] `json:"persistence"`
	// nvmlComputeMode_t: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process
	ComputeMode Reading[int] `json:"compute_mode"`
}

// Health has the error counters of a GPU, and the action that it requests.
type Health struct {
	// field 230: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX
	Recovery Reading[int]          `json:"recovery"`
	Remapped Reading[RemappedRows] `json:"remapped"`
	Retired  Reading[RetiredPages] `json:"retired"` // before Ampere
	DRAM     Reading[MemoryErrors] `json:"dram_errors"`
	SRAM     Reading[MemoryErrors] `json:"sram_errors"` // of caches and register files
}

// Interconnect describes a GPU's links to other GPUs and to the CPU.
type Interconnect struct {
	Fabric Reading[Fabric]    `json:"fabric"`
	Links  []NVLink           `json:"links,omitempty"` // the NVLinks that the GPU has
	C2C    Reading[LinkCount] `json:"c2c"`             // active links to the CPU (Grace)
}

// Utilization describes the instances and the processes of a GPU.
type Utilization struct {
	MIG          Reading[ModeState] `json:"mig"`
	MIGInstances []MIGInstance      `json:"migs,omitempty"`
	Processes    Reading[[]Process] `json:"processes"` // compute processes
	// graphics processes, for example of a desktop
	GraphicsProcesses Reading[[]Process] `json:"graphics_processes"`
}

// IsUsable reports whether the GPU can be used: it is not lost.
func (g GPU) IsUsable() bool {
	_, lost := g.LossReason()
	return !lost
}

// LossReason reports whether the GPU cannot be used, and the result that shows it. If the GPU is
// lost during the inspection, that is the result of one of the later queries.
func (g GPU) LossReason() (NVMLReturn, bool) {
	if g.Handle != Success {
		return g.Handle, true
	}
	for _, why := range []NVMLReturn{
		g.UUID.Reason, g.Bus.Reason, g.Name.Reason, g.VBIOS.Reason, g.GSP.Reason, g.Memory.Reason,
		g.Numa.Reason, g.Persistence.Reason, g.ComputeMode.Reason, g.Recovery.Reason,
		g.Remapped.Reason, g.Retired.Reason, g.DRAM.Reason, g.SRAM.Reason, g.Fabric.Reason,
		g.C2C.Reason, g.MIG.Reason, g.Processes.Reason, g.GraphicsProcesses.Reason,
	} {
		if why.IsPermanentLoss() {
			return why, true
		}
	}
	for _, link := range g.Links {
		if why := link.Active.Reason; why.IsPermanentLoss() {
			return why, true
		}
	}
	return "", false
}

// LinkCount counts the active links, and all links.
type LinkCount struct {
	Active int `json:"active"`
	Total  int `json:"all"`
}

// PCISlot is an NVIDIA GPU on the PCI bus, as the kernel describes it.
type PCISlot struct {
	Bus string `json:"bus"` // for example 0000:3b:00.0
	// ID is the first four bytes of its configuration space, vendor and device: 10de:2330. A device
	// that has fallen off the bus returns ffff:ffff. It is empty if it could not be read.
	ID string `json:"id"`
}

// OffBus is the PCISlot.ID of a device that has fallen off the bus: an unanswered read has all bits
// set.
const OffBus = "ffff:ffff"

// Memory has the total and used sizes of a GPU's memory, in bytes.
type Memory struct {
	Total uint64 `json:"total"`
	Used  uint64 `json:"used"`
}

// ModeState is a mode of a GPU; a change takes effect at the next reset.
type ModeState struct {
	Current bool `json:"current"`
	Pending bool `json:"pending"`
}

// RemappedRows counts the memory rows that were replaced by spare ones.
type RemappedRows struct {
	Uncorrected int  `json:"uncorrected"` // after uncorrectable errors
	Pending     bool `json:"pending"`     // until the next reset
	Failed      bool `json:"failed"`
}

// RetiredPages counts the memory pages that are no longer used.
type RetiredPages struct {
	SingleBit int  `json:"single_bit"`
	DoubleBit int  `json:"double_bit"`
	Pending   bool `json:"pending"`
}

// MemoryErrors describes the memory errors since the last reset.
type MemoryErrors struct {
	Uncorrected uint64 `json:"uncorrected"`
	// more uncorrectable errors of SRAM than the GPU tolerates; unknown before r550
	ThresholdExceeded bool `json:"threshold_exceeded,omitempty"`
}

// Fabric is the state of a GPU in the NVLink fabric.
type Fabric struct {
	State   int        `json:"state"`   // 0 not supported, 1 not started, 2 in progress, 3 completed
	Status  NVMLReturn `json:"status"`  // result of the registration, if completed
	Cluster string     `json:"cluster"` // UUID of the NVLink domain; empty or zeros: none
	Clique  uint32     `json:"clique"`
	// Summary and Mask are nil if the driver is too old.
	// 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity
	Summary *int    `json:"summary,omitempty"`
	Mask    *uint32 `json:"mask,omitempty"` // nvmlGpuFabricHealthMask: pairs of bits
}

// The values of nvmlGpuFabricState_t.
const (
	FabricNotSupported = 0
	FabricNotStarted   = 1
	FabricInProgress   = 2
	FabricCompleted    = 3
)

// HasJoined reports whether the GPU has joined the fabric.
func (f Fabric) HasJoined() bool { return f.State == FabricCompleted && f.Status == Success }

// IsSingleNode reports whether the fabric has only one node.
func (f Fabric) IsSingleNode() bool { return strings.Trim(f.Cluster, "0-") == "" }

// NVLink is one NVLink.
type NVLink struct {
	Index  int           `json:"index"`
	Active Reading[bool] `json:"active"`
}

// GPUPair is the NVLink status of two GPUs.
type GPUPair struct {
	A      int          `json:"a"`
	B      int          `json:"b"`
	Status Reading[int] `json:"status"` // nvmlGpuP2PStatus_t: 0 OK, 5 not supported, …
}

// MIGInstance is one instance of a partitioned GPU.
type MIGInstance struct {
	UUID      string             `json:"uuid"`
	Name      string             `json:"name"`
	Memory    Reading[Memory]    `json:"memory"`
	Processes Reading[[]Process] `json:"processes"`
}

// Process is a process that uses a GPU. The PID is the host's, even in a container.
type Process struct {
	PID  int    `json:"pid"`
	Used uint64 `json:"used"` // in bytes
	// Unknown is set if the driver does not provide Used.
	Unknown bool `json:"used_unknown,omitempty"`
	// Name is empty if /proc has no process with this PID: it may be in another container, or have
	// ended. If this process is in a container, all names are empty.
	Name string `json:"name,omitempty"`
}
