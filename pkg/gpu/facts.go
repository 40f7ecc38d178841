package gpu

import (
	"cmp"
	"strings"
)

// FactsVersion is the version of the form that Facts have as JSON.
const FactsVersion = 1

// Return is what a call into NVML has returned, without NVML_ERROR_ before it: "NOT_SUPPORTED". A call of a function
// that the library lacks is "FUNCTION_NOT_FOUND" and was never made.
type Return string

// The returns that mean more than that there is no answer. The names are those of nvmlReturn_t in nvml.h.
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
	NoCgo              Return = "NO_CGO"              // ours: this bringupd was built without cgo
	DriverUnresponsive Return = "DRIVER_UNRESPONSIVE" // ours: no answer came in time
	ProbeDied          Return = "PROBE_DIED"          // ours: the process that asked has died
)

// Gone tells of an answer that a GPU will give for ever, until somebody acts.
func (why Return) Gone() bool { return why == GPUIsLost || why == ResetRequired }

// Unasked tells whether the question can't be asked, or was not: then nothing is known, and nothing has gone wrong.
func (why Return) Unasked() bool {
	return why == "" || why == NotSupported || why == FunctionNotFound
}

// Said is the answer in words for people.
func (why Return) Said() string { return cmp.Or(string(why), "not asked") }

// Reading is what one question was answered: a value, or why there is none. So "zero" and "could not be read" never
// look alike. The zero Reading was not asked.
type Reading[T any] struct {
	Value *T     `json:"value,omitempty"`
	Why   Return `json:"why,omitempty"` // where there is no value
}

// read returns a Reading of that value.
func read[T any](value T) Reading[T] { return Reading[T]{Value: &value} }

// unread returns a Reading of none.
func unread[T any](why Return) Reading[T] { return Reading[T]{Why: why} }

// Get returns the value, and whether there is one.
func (r Reading[T]) Get() (value T, ok bool) {
	if r.Value == nil {
		return value, false
	}
	return *r.Value, true
}

// OrZero is the value, zero where there is none.
func (r Reading[T]) OrZero() (value T) {
	value, _ = r.Get()
	return value
}

// Facts are what one look at the GPUs of a node has seen.
type Facts struct {
	Version int    `json:"version"`
	Init    Return `json:"init"`             // nvmlInit's answer; where it isn't SUCCESS there is nothing below
	Detail  string `json:"detail,omitempty"` // where Init is one of ours, or the library can't be loaded: what was seen

	Library string          `json:"library,omitempty"` // the file that was asked for
	Driver  Reading[string] `json:"driver"`            // 570.86.15
	CUDA    Reading[string] `json:"cuda"`              // the newest that the driver runs: 12.8
	NVML    Reading[string] `json:"nvml"`

	Count Reading[int] `json:"count"`
	GPUs  []GPU        `json:"gpus,omitempty"`  // by index, also those that can't be had
	Slots []Slot       `json:"slots,omitempty"` // by address: NVIDIA's GPUs on the bus, whoever may use them
	Pairs []Pair       `json:"pairs,omitempty"` // each once, of GPUs that can be had
	// Others are the GPUs of a node on which nothing shows NVIDIA.
	Others []Other `json:"others,omitempty"`
}

// GPU is one GPU.
type GPU struct {
	Index int `json:"index"`
	// Handle is SUCCESS, or why this GPU can't be asked anything: then there is nothing below but what could be had of
	// it otherwise.
	Handle Return `json:"handle"`
	// Hangs is the call that has not returned, where Handle is DRIVER_UNRESPONSIVE.
	Hangs string `json:"hangs,omitempty"`

	UUID Reading[string] `json:"uuid"`
	Bus  Reading[string] `json:"bus"` // PCI address as sysfs has it: 0000:3b:00.0
	Name Reading[string] `json:"name"`
	Make
	Health
	Ties
	Use
	Tune
}

// Make is what a GPU is, and how it is set up.
type Make struct {
	Serial  Reading[string] `json:"serial"`
	VBIOS   Reading[string] `json:"vbios"`
	GSP     Reading[string] `json:"gsp"` // version of the GPU's own firmware
	Memory  Reading[Memory] `json:"memory"`
	Numa    Reading[int]    `json:"numa"` // where the GPU's memory is a NUMA node (Grace): that, not the CPUs' node
	Minor   Reading[int]    `json:"minor"`
	Persist Reading[bool]   `json:"persistence"`
	Compute Reading[int]    `json:"compute_mode"` // nvmlComputeMode_t: 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process
}

// Health is what a GPU has suffered.
type Health struct {
	Recovery Reading[int]      `json:"recovery"` // field 230: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX
	Remapped Reading[Remapped] `json:"remapped"`
	Retired  Reading[Retired]  `json:"retired"` // before Ampere
	ECC      Reading[Switch]   `json:"ecc"`
	DRAM     Reading[Errors]   `json:"dram_errors"` // volatile: since the last reset
	SRAM     Reading[SRAM]     `json:"sram_errors"`
}

// Ties are a GPU's to others and to the machine.
type Ties struct {
	Fabric  Reading[Fabric] `json:"fabric"`
	Links   []Link          `json:"links,omitempty"` // NVLinks, those that the GPU has
	PCIe    Reading[PCIe]   `json:"pcie"`
	Replays Reading[int]    `json:"pcie_replays"`
	C2C     Reading[Part]   `json:"c2c"` // links to the CPU (Grace), those that are active
}

// Use is what a GPU does, and for whom.
type Use struct {
	Slowed Reading[[]uint64]  `json:"clock_reasons"` // bit masks, of several looks
	Load   Reading[int]       `json:"load_percent"`
	MIG    Reading[Switch]    `json:"mig"`
	MIGs   []MIG              `json:"migs,omitempty"`
	Procs  Reading[[]Process] `json:"processes"`          // that compute
	Screen Reading[[]Process] `json:"graphics_processes"` // that draw: a desktop's
}

// Tune is how fast a GPU may go, and how hard it works.
type Tune struct {
	State       Reading[int]    `json:"performance_state"` // 0 the fastest, 15 the slowest
	Temperature Reading[int]    `json:"temperature"`       // °C
	Power       Reading[Power]  `json:"power"`
	Clocks      Reading[Clocks] `json:"application_clocks"`
}

// Answers tells whether the GPU can be worked with.
func (g GPU) Answers() bool {
	_, lost := g.Lost()
	return !lost
}

// Lost tells whether the GPU can't be worked with, and which answer says so. A GPU that is lost while it is asked says
// so in one of the later answers.
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

// Power is what a GPU draws and may draw, in mW.
type Power struct {
	Draw    int `json:"draw"`
	Limit   int `json:"limit"`
	Default int `json:"default_limit"`
}

// Clocks are those that programs run with where the GPU is not slowed down, in MHz.
type Clocks struct {
	Graphics int `json:"graphics"`
	Memory   int `json:"memory"`
}

// Part is so many of all.
type Part struct {
	Active int `json:"active"`
	All    int `json:"all"`
}

// Slot is a GPU of NVIDIA's as the kernel has it on the PCI bus.
type Slot struct {
	Bus string `json:"bus"` // 0000:3b:00.0
	// ID is the first four bytes of its configuration space, vendor and device: 10de:2330. A device that has fallen off
	// the bus answers ffff:ffff. Empty: it could not be read.
	ID string `json:"id"`
}

// OffBus is Slot.ID of a device that is no longer there: a read that nobody answers has all bits set.
const OffBus = "ffff:ffff"

// Memory is a GPU's memory, in bytes.
type Memory struct {
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Reserved uint64 `json:"reserved"`
}

// Switch is a mode that takes effect at the next reset.
type Switch struct {
	Current bool `json:"current"`
	Pending bool `json:"pending"`
}

// Remapped are rows of memory that were replaced by spare ones.
type Remapped struct {
	Corrected   int  `json:"corrected"`
	Uncorrected int  `json:"uncorrected"`
	Pending     bool `json:"pending"` // until the next reset
	Failed      bool `json:"failed"`
}

// Retired are pages of memory that are no longer used.
type Retired struct {
	SingleBit int  `json:"single_bit"`
	DoubleBit int  `json:"double_bit"`
	Pending   bool `json:"pending"`
}

// Errors count errors of memory.
type Errors struct {
	Corrected   uint64 `json:"corrected"`
	Uncorrected uint64 `json:"uncorrected"`
}

// SRAM are errors of the caches and register files.
type SRAM struct {
	Errors
	ThresholdExceeded bool `json:"threshold_exceeded"`
	Unknown           bool `json:"threshold_unknown,omitempty"` // the driver is too old to tell (before r550)
}

// Fabric is how far a GPU has got in joining the NVLink fabric.
type Fabric struct {
	State   int    `json:"state"`   // 0 not supported, 1 not started, 2 in progress, 3 completed
	Status  Return `json:"status"`  // where completed: of the registration
	Cluster string `json:"cluster"` // UUID of the NVLink domain; empty or zeros: none
	Clique  uint32 `json:"clique"`
	// Summary and Mask are absent where the driver is too old for them.
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

// Joined tells whether the GPU has joined the fabric.
func (f Fabric) Joined() bool { return f.State == FabricComplete && f.Status == Success }

// Single tells whether the fabric is of one node.
func (f Fabric) Single() bool { return strings.Trim(f.Cluster, "0-") == "" }

// Link is one NVLink.
type Link struct {
	Index  int           `json:"index"`
	Active Reading[bool] `json:"active"`
}

// Pair is whether two GPUs reach each other over NVLink.
type Pair struct {
	A      int          `json:"a"`
	B      int          `json:"b"`
	Status Reading[int] `json:"status"` // nvmlGpuP2PStatus_t: 0 OK, 5 not supported, …
}

// PCIe is a GPU's link to the machine.
type PCIe struct {
	Width    int `json:"width"` // lanes
	MaxWidth int `json:"max_width"`
	Gen      int `json:"gen"`
	MaxGen   int `json:"max_gen"`
}

// MIG is one instance of a GPU that is cut into several.
type MIG struct {
	UUID   string             `json:"uuid"`
	Name   string             `json:"name"`
	Memory Reading[Memory]    `json:"memory"`
	Procs  Reading[[]Process] `json:"processes"`
}

// Process is one that computes on a GPU. The number is the host's, whatever container we are in.
type Process struct {
	PID  int    `json:"pid"`
	Used uint64 `json:"used"` // bytes
	// Unknown is where the driver does not tell how many.
	Unknown bool `json:"used_unknown,omitempty"`
	// Name is empty where /proc knows no such process: it may be in another container, or gone. In a container none has
	// a name.
	Name string `json:"name,omitempty"`
}
