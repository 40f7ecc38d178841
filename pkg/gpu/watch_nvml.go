package gpu

import "time"

// eventLibrary is what the watch asks of NVML. All but Init may be called after
// a successful Init only.
type eventLibrary interface {
	Init() Return
	Shutdown() Return
	// Missing names the functions that the watch calls and the library lacks:
	// a call of one of them would end the process.
	Missing() []string
	// EventGPUs returns as many handles as there are GPUs, in their order.
	EventGPUs() ([]eventGPU, Return)
	EventSet() (eventSet, Return)
}

// eventGPU is what the watch asks of one GPU.
type eventGPU interface {
	// Reach looks the GPU up, which fails for one that is lost.
	Reach() Return
	UUID() (string, Return)
	Bus() (string, Return) // as NVML writes it: 00000000:3B:00.0
	Supported() (events uint64, ret Return)
	Recovery() (action int, ret Return) // field 230
}

// eventSet is where the driver puts what befalls the GPUs that are registered.
type eventSet interface {
	Register(gpu int, events uint64) Return
	// Wait returns the next event, or timedOut.
	Wait(limit time.Duration) (driverEvent, Return)
	Free() Return
}

// driverEvent is an event as the driver tells it.
type driverEvent struct {
	gpu  int    // index, as of EventGPUs; -1 where the handle is none of them
	uuid string // where the handle is none of them, and says who it is
	kind uint64
	data uint64 // the Xid
}

// Two of nvmlEventType*. The second came with drivers that have field 230.
const (
	xidEvents      uint64 = 0x8
	recoveryEvents uint64 = 0x8000
)

const timedOut Return = "TIMEOUT"
