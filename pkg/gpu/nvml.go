package gpu

import "encoding/binary"

// library is what we ask of NVML itself. Each answer comes with what the call
// returned; where that is not Success the answer is nothing. All but Init may be
// called after a successful Init only, and where Has knows the function: the
// loader ends the process otherwise.
type library interface {
	Init() Return
	Shutdown() Return
	Has(function string) bool
	// Device returns the handle of a GPU.
	Device(index int) (device, Return)
	system
}

type system interface {
	DriverVersion() (string, Return)
	CUDAVersion() (int, Return) // 12080 is 12.8
	NVMLVersion() (string, Return)
	DeviceCount() (int, Return)
}

// device is what we ask of one GPU, by what it tells of.
type device interface {
	identity
	place
	modes
	memory
	damage
	links
	lane
	activity
	slicing
}

type identity interface {
	UUID() (string, Return)
	Name() (string, Return)
	Serial() (string, Return)
	VBIOS() (string, Return)
	GSP() (string, Return)
}

type place interface {
	Bus() (string, Return) // as NVML writes it: 00000000:3B:00.0
	NUMANode() (int, Return)
	Minor() (int, Return)
}

type modes interface {
	Persistence() (bool, Return)
	ComputeMode() (int, Return)
	ECC() (Switch, Return)
	MIGMode() (Switch, Return)
}

type memory interface {
	Memory() (Memory, Return)   // older drivers: what is reserved counts as used
	MemoryV2() (Memory, Return) // since r510
	Processes() ([]Process, Return)
}

type damage interface {
	Fields(ids ...uint32) ([]field, Return)
	RemappedRows() (Remapped, Return)
	RetiredPages() (Retired, Return)
	// ErrorCount is volatile. Where place is anywhere, it is of all memory.
	ErrorCount(uncorrected bool, place location) (uint64, Return)
	SRAM() (SRAM, Return)
}

// location is nvmlMemoryLocation_t.
type location int

const (
	inDRAM   location = 2
	inSRAM   location = 7
	anywhere location = -1 // ours
)

type links interface {
	// Fabric takes the version of the structure that is asked for: 3, 2 or 1,
	// which is a function of its own.
	Fabric(version int) (Fabric, Return)
	LinkActive(link int) (bool, Return)
	// LinkTo is whether NVLink reaches another GPU: nvmlGpuP2PStatus_t.
	LinkTo(other device) (int, Return)
}

type lane interface {
	PCIeWidth() (now, most int, ret Return)
	PCIeGeneration() (now, most int, ret Return)
	PCIeReplays() (int, Return)
}

type activity interface {
	Load() (int, Return)
	ClockReasons() (uint64, Return)    // since r535
	ThrottleReasons() (uint64, Return) // its older name
}

type slicing interface {
	MIGCount() (int, Return) // the most there can be
	MIGDevice(index int) (device, Return)
}

// field is one answer of nvmlDeviceGetFieldValues, which says of each whether
// there is one.
type field struct {
	ret  Return
	kind uint32 // nvmlValueType_t
	raw  [8]byte
}

// integer returns the value of a field that holds a whole number.
func (f field) integer() (int, Return) {
	if f.ret != Success {
		return 0, f.ret
	}
	all := binary.NativeEndian.Uint64(f.raw[:])
	switch low := binary.NativeEndian.Uint32(f.raw[:4]); f.kind {
	case 1: // unsigned int
		return int(low), Success
	case 2, 3, 4: // (unsigned) long (long)
		return int(all), Success
	case 5: // int
		return int(int32(low)), Success
	case 6: // unsigned short
		return int(binary.NativeEndian.Uint16(f.raw[:2])), Success
	default:
		return 0, UnknownError
	}
}
