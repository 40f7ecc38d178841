package gpu

import (
	"cmp"
	"strings"
)

// FactsVersion is the version of the JSON format of Facts.
const FactsVersion = 1

// Return is the result of an NVML call, without the prefix NVML_ERROR_: "NOT_SUPPORTED". If the
// library lacks a function, the call is not made, and the result is "FUNCTION_NOT_FOUND".
type Return string

// Results with a special meaning. The names are those of nvmlReturn_t in nvml.h.
const (
	Success            Return = "SUCCESS"
	Uninitialized      Return = "UNINITIALIZED"
	InvalidArgument    Return = "INVALID_ARGUMENT"
	NotSupported       Return = "NOT_SUPPORTED"
	NoPermission       Return = "NO_PERMISSION"
	DriverNotLoaded    Return = "DRIVER_NOT_LOADED"
	LibraryNotFound    Return = "LIBRARY_NOT_FOUND"
	FunctionNotFound   Return = "FUNCTION_NOT_FOUND"
	GPUIsLost          Return = "GPU_IS_LOST"
	ResetRequired      Return = "RESET_REQUIRED"
	OperatingSystem    Return = "OPERATING_SYSTEM"
	LibRMVersion       Return = "LIB_RM_VERSION_MISMATCH"
	UnknownError       Return = "UNKNOWN"
	versionMismatch    Return = "ARGUMENT_VERSION_MISMATCH" // the library is older than the structure
	deprecated         Return = "DEPRECATED"
	NoCgo              Return = "NO_CGO"              // not from NVML: this bringupd was built without cgo
	DriverUnresponsive Return = "DRIVER_UNRESPONSIVE" // not from NVML: no answer came in time
	ProbeDied          Return = "PROBE_DIED"          // not from NVML: the querying process has died
)

// Gone reports whether the GPU is unusable, and will return this result until an administrator
// acts.
func (why Return) Gone() bool { return why == GPUIsLost || why == ResetRequired }

// Unasked reports whether the query was not made, or is not supported. The value is then unknown,
// but nothing is wrong.
func (why Return) Unasked() bool {
	return why == "" || why == NotSupported || why == FunctionNotFound
}

// Said returns the result as text, "not asked" if there is none.
func (why Return) Said() string { return cmp.Or(string(why), "not asked") }

// Reading is the result of one query: a value, or the reason why there is none. So zero is never
// mistaken for a failed query. The zero Reading was not queried.
type Reading[T any] struct {
	Value *T     `json:"value,omitempty"`
	Why   Return `json:"why,omitempty"` // the reason if there is no value
}

// read returns a Reading with a value.
func read[T any](value T) Reading[T] { return Reading[T]{Value: &value} }

// unread returns a Reading without a value.
func unread[T any](why Return) Reading[T] { return Reading[T]{Why: why} }

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
	Version int    `json:"version"`
	Init    Return `json:"init"`             // result of nvmlInit; if it is not SUCCESS the following fields are empty
	Detail  string `json:"detail,omitempty"` // details if Init is not from NVML, or if the library cannot be loaded

	Library string          `json:"library,omitempty"` // the library that was requested; empty: found by the loader
	Driver  Reading[string] `json:"driver"`            // for example 570.86.15
	CUDA    Reading[string] `json:"cuda"`              // the newest version that the driver supports: 12.8
	NVML    Reading[string] `json:"nvml"`

	Count Reading[int] `json:"count"`
	GPUs  []GPU        `json:"gpus,omitempty"`  // sorted by index, including those that cannot be queried
	Slots []Slot       `json:"slots,omitempty"` // NVIDIA's GPUs on the bus, by address, including those that this process may not use
	Pairs []Pair       `json:"pairs,omitempty"` // each pair of GPUs with a handle, once
	// Others are the GPUs of other vendors, if the node has no sign of NVIDIA.
	Others []Other `json:"others,omitempty"`
}

// GPU is one GPU.
type GPU struct {
	Index int `json:"index"`
	// Handle is SUCCESS, or the reason why this GPU cannot be queried. In that case only fields with
	// another source are set.
	Handle Return `json:"handle"`
	// Hangs is the call that has not returned, if Handle is DRIVER_UNRESPONSIVE.
	Hangs string `json:"hangs,omitempty"`

	UUID Reading[string] `json:"uuid"`
	Bus  Reading[string] `json:"bus"` // PCI address in the format of sysfs: 0000:3b:00.0
	Name Reading[string] `json:"name"`
	Make
	Health
	Ties
	Use
	Tune
}

// Make describes the hardware and firmware of a GPU and some of its settings.
type Make struct {
	Serial  Reading[string] `json:"serial"`
	VBIOS   Reading[string] `json:"vbios"`
	GSP     Reading[string] `json:"gsp"` // version of the GPU's own firmware
	Memory  Reading[Memory] `json:"memory"`
	Numa    Reading[int]    `json:"numa"` // the NUMA node that is the GPU's own memory (Grace), not that of the nearest CPUs
	Minor   Reading[int]    `json:"minor"`
	Persist Reading[bool]   `json:"persistence"`
	Compute Reading[int]    `json:"compute_mode"` // nvmlComputeMode_t: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process
}

// Health has the error counters of a GPU, and the action that it requests.
type Health struct {
	Recovery Reading[int]      `json:"recovery"` // field 230: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX
	Remapped Reading[Remapped] `json:"remapped"`
	Retired  Reading[Retired]  `json:"retired"` // before Ampere
	ECC      Reading[Switch]   `json:"ecc"`
	DRAM     Reading[Errors]   `json:"dram_errors"` // volatile: since the last reset
	SRAM     Reading[SRAM]     `json:"sram_errors"`
}

// Ties describes a GPU's links to other GPUs and to the machine.
type Ties struct {
	Fabric  Reading[Fabric] `json:"fabric"`
	Links   []Link          `json:"links,omitempty"` // the NVLinks that the GPU has
	PCIe    Reading[PCIe]   `json:"pcie"`
	Replays Reading[int]    `json:"pcie_replays"`
	C2C     Reading[Part]   `json:"c2c"` // active links to the CPU (Grace)
}

// Use describes the load of a GPU, its instances and its processes.
type Use struct {
	Slowed Reading[[]uint64]  `json:"clock_reasons"` // the reasons for slower clocks, as bit masks, of several readings
	Load   Reading[int]       `json:"load_percent"`
	MIG    Reading[Switch]    `json:"mig"`
	MIGs   []MIG              `json:"migs,omitempty"`
	Procs  Reading[[]Process] `json:"processes"`          // compute processes
	Screen Reading[[]Process] `json:"graphics_processes"` // graphics processes, for example of a desktop
}

// Tune has the performance state, the temperature, the power and the clocks of a GPU.
type Tune struct {
	State       Reading[int]    `json:"performance_state"` // 0 is the fastest, 15 the slowest
	Temperature Reading[int]    `json:"temperature"`       // in °C
	Power       Reading[Power]  `json:"power"`
	Clocks      Reading[Clocks] `json:"application_clocks"`
}

// Answers reports whether the GPU can be used: it is not lost.
func (g GPU) Answers() bool {
	_, lost := g.Lost()
	return !lost
}

// Lost reports whether the GPU cannot be used, and the result that shows it. If the GPU is lost
// during the inspection, that is the result of one of the later queries.
func (g GPU) Lost() (Return, bool) {
	if g.Handle != Success {
		return g.Handle, true
	}
	for _, why := range []Return{
		g.UUID.Why, g.Bus.Why, g.Name.Why, g.Serial.Why, g.VBIOS.Why, g.GSP.Why, g.Memory.Why, g.Numa.Why, g.Minor.Why, g.Persist.Why,
		g.Compute.Why, g.Recovery.Why, g.Remapped.Why, g.Retired.Why, g.ECC.Why, g.DRAM.Why, g.SRAM.Why, g.Fabric.Why,
		g.PCIe.Why, g.Replays.Why, g.C2C.Why, g.Slowed.Why, g.Load.Why, g.MIG.Why, g.Procs.Why, g.Screen.Why,
		g.State.Why, g.Temperature.Why, g.Power.Why, g.Clocks.Why,
	} {
		if why.Gone() {
			return why, true
		}
	}
	for _, link := range g.Links {
		if why := link.Active.Why; why.Gone() {
			return why, true
		}
	}
	return "", false
}

// Power has the power use and limits of a GPU, in mW.
type Power struct {
	Draw    int `json:"draw"`
	Limit   int `json:"limit"`
	Default int `json:"default_limit"`
}

// Clocks are the application clocks, in MHz: programs run with them if the GPU is not slowed down.
type Clocks struct {
	Graphics int `json:"graphics"`
	Memory   int `json:"memory"`
}

// Part counts the active links, and all links.
type Part struct {
	Active int `json:"active"`
	All    int `json:"all"`
}

// Slot is an NVIDIA GPU on the PCI bus, as the kernel describes it.
type Slot struct {
	Bus string `json:"bus"` // for example 0000:3b:00.0
	// ID is the first four bytes of its configuration space, vendor and device: 10de:2330. A device
	// that has fallen off the bus returns ffff:ffff. It is empty if it could not be read.
	ID string `json:"id"`
}

// OffBus is the Slot.ID of a device that has fallen off the bus: an unanswered read has all bits
// set.
const OffBus = "ffff:ffff"

// Memory has the total, used and reserved sizes of a GPU's memory, in bytes.
type Memory struct {
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Reserved uint64 `json:"reserved"`
}

// Switch is a mode of a GPU; a change takes effect at the next reset.
type Switch struct {
	Current bool `json:"current"`
	Pending bool `json:"pending"`
}

// Remapped counts the memory rows that were replaced by spare ones.
type Remapped struct {
	Corrected   int  `json:"corrected"`
	Uncorrected int  `json:"uncorrected"`
	Pending     bool `json:"pending"` // until the next reset
	Failed      bool `json:"failed"`
}

// Retired counts the memory pages that are no longer used.
type Retired struct {
	SingleBit int  `json:"single_bit"`
	DoubleBit int  `json:"double_bit"`
	Pending   bool `json:"pending"`
}

// Errors counts memory errors.
type Errors struct {
	Corrected   uint64 `json:"corrected"`
	Uncorrected uint64 `json:"uncorrected"`
}

// SRAM counts the errors of caches and register files.
type SRAM struct {
	Errors
	ThresholdExceeded bool `json:"threshold_exceeded"`
	Unknown           bool `json:"threshold_unknown,omitempty"` // the driver is too old to report it (before r550)
}

// Fabric is the state of a GPU in the NVLink fabric.
type Fabric struct {
	State   int    `json:"state"`   // 0 not supported, 1 not started, 2 in progress, 3 completed
	Status  Return `json:"status"`  // result of the registration, if completed
	Cluster string `json:"cluster"` // UUID of the NVLink domain; empty or zeros: none
	Clique  uint32 `json:"clique"`
	// Summary and Mask are nil if the driver is too old.
	Summary *int    `json:"summary,omitempty"` // 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity
	Mask    *uint32 `json:"mask,omitempty"`    // nvmlGpuFabricHealthMask: pairs of bits
}

// The values of nvmlGpuFabricState_t.
const (
	FabricNone     = 0
	FabricNotYet   = 1
	FabricJoining  = 2
	FabricComplete = 3
)

// Joined reports whether the GPU has joined the fabric.
func (f Fabric) Joined() bool { return f.State == FabricComplete && f.Status == Success }

// Single reports whether the fabric has only one node.
func (f Fabric) Single() bool { return strings.Trim(f.Cluster, "0-") == "" }

// Link is one NVLink.
type Link struct {
	Index  int           `json:"index"`
	Active Reading[bool] `json:"active"`
}

// Pair is the NVLink status of two GPUs.
type Pair struct {
	A      int          `json:"a"`
	B      int          `json:"b"`
	Status Reading[int] `json:"status"` // nvmlGpuP2PStatus_t: 0 OK, 5 not supported, …
}

// PCIe describes a GPU's PCIe link.
type PCIe struct {
	Width    int `json:"width"` // number of lanes
	MaxWidth int `json:"max_width"`
	Gen      int `json:"gen"`
	MaxGen   int `json:"max_gen"`
}

// MIG is one instance of a partitioned GPU.
type MIG struct {
	UUID   string             `json:"uuid"`
	Name   string             `json:"name"`
	Memory Reading[Memory]    `json:"memory"`
	Procs  Reading[[]Process] `json:"processes"`
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
