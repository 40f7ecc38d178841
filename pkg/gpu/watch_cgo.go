//go:build linux && cgo

package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlEvents is NVML, as the watch sees it.
type nvmlEvents struct {
	nvml.Interface
	gpus []eventGPU
}

// openEvents returns the library of that path; empty: the loader finds it.
func openEvents(path string) eventLibrary {
	if path == "" {
		return &nvmlEvents{Interface: nvml.New()}
	}
	return &nvmlEvents{Interface: nvml.New(nvml.WithLibraryPath(path))}
}

var _ eventLibrary = (*nvmlEvents)(nil)

// eventFunctions are all that the watch calls, each by one of its names.
var eventFunctions = [][]string{
	{"nvmlShutdown"},
	{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	{"nvmlDeviceGetUUID"},
	{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
	{"nvmlDeviceGetSupportedEventTypes"},
	{"nvmlDeviceRegisterEvents"},
	{"nvmlDeviceGetFieldValues"},
	{"nvmlEventSetCreate"},
	{"nvmlEventSetWait_v2", "nvmlEventSetWait"},
	{"nvmlEventSetFree"},
}

func (l *nvmlEvents) Missing() (missing []string) {
	for _, names := range eventFunctions {
		has := false
		for _, name := range names {
			has = has || l.Extensions().LookupSymbol(name) == nil
		}
		if !has {
			missing = append(missing, names[0])
		}
	}
	return missing
}

func (l *nvmlEvents) Init() Return     { return named(l.Interface.Init()) }
func (l *nvmlEvents) Shutdown() Return { return named(l.Interface.Shutdown()) }

func (l *nvmlEvents) EventGPUs() ([]eventGPU, Return) {
	count, ret := l.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, named(ret)
	}
	l.gpus = nil
	for i := range count {
		g := &nvmlEventGPU{library: l.Interface, index: i}
		g.handle, g.ret = l.DeviceGetHandleByIndex(i)
		l.gpus = append(l.gpus, g)
	}
	return l.gpus, Success
}

func (l *nvmlEvents) EventSet() (eventSet, Return) {
	set, ret := l.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, named(ret)
	}
	return &nvmlEventSet{set: set, gpus: l.gpus}, Success
}

// nvmlEventGPU is one GPU. Where it has no handle, all questions are answered
// with why.
type nvmlEventGPU struct {
	library nvml.Interface
	index   int
	handle  nvml.Device
	ret     nvml.Return
}

func (g *nvmlEventGPU) Reach() Return {
	_, ret := g.library.DeviceGetHandleByIndex(g.index)
	return named(ret)
}

func (g *nvmlEventGPU) UUID() (string, Return) {
	if g.ret != nvml.SUCCESS {
		return "", named(g.ret)
	}
	return answer(g.handle.GetUUID())
}

func (g *nvmlEventGPU) Bus() (string, Return) {
	if g.ret != nvml.SUCCESS {
		return "", named(g.ret)
	}
	return nvmlDevice{g.handle}.Bus()
}

func (g *nvmlEventGPU) Supported() (uint64, Return) {
	if g.ret != nvml.SUCCESS {
		return 0, named(g.ret)
	}
	return answer(g.handle.GetSupportedEventTypes())
}

func (g *nvmlEventGPU) Recovery() (int, Return) {
	if g.ret != nvml.SUCCESS {
		return 0, named(g.ret)
	}
	return oneField(nvmlDevice{g.handle}, recoveryField)
}

type nvmlEventSet struct {
	set  nvml.EventSet
	gpus []eventGPU
}

func (s *nvmlEventSet) Register(gpu int, events uint64) Return {
	g := s.gpus[gpu].(*nvmlEventGPU)
	if g.ret != nvml.SUCCESS {
		return named(g.ret)
	}
	return named(g.handle.RegisterEvents(events, s.set))
}

func (s *nvmlEventSet) Wait(limit time.Duration) (driverEvent, Return) {
	data, ret := s.set.Wait(uint32(limit.Milliseconds()))
	if ret != nvml.SUCCESS {
		return driverEvent{}, named(ret)
	}
	event := driverEvent{gpu: s.find(data.Device), kind: data.EventType, data: data.EventData}
	if event.gpu < 0 && data.Device != nil {
		if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
			event.uuid = uuid
		}
	}
	return event, Success
}

// find tells whose handle this is, without asking a GPU that may be lost: NVML
// gives one handle for each.
func (s *nvmlEventSet) find(handle nvml.Device) int {
	for i, gpu := range s.gpus {
		if g := gpu.(*nvmlEventGPU); g.ret == nvml.SUCCESS && g.handle == handle {
			return i
		}
	}
	return -1
}

func (s *nvmlEventSet) Free() Return { return named(s.set.Free()) }
