//go:build linux && cgo

package gpu

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// mostInstances limits the number of instances of a GPU that are queried. It is larger than the
// number of instances that any GPU can have.
const mostInstances = 64

// inspector queries one GPU, or NVML itself, and sets the fields of [inspector.gpu].
type inspector struct {
	*collector
	slot   int // the GPU's index, or system0
	gpu    *GPU
	device nvml.Device // nil if the GPU cannot be opened
}

// open gets the handle of the GPU. A lost GPU has none.
func (i *inspector) open() {
	handle := i.handle()
	i.device, _ = handle.Get()
	i.gpu.Handle = cmp.Or(handle.Why, Success)
}

// handle queries the handle of the GPU.
func (i *inspector) handle() Reading[nvml.Device] {
	return ask(i, func() (nvml.Device, nvml.Return) { return i.lib.DeviceGetHandleByIndex(i.slot) }, "nvmlDeviceGetHandleByIndex")
}

// see queries everything about the GPU. It calls came as soon as the GPU is initialised.
func (i *inspector) see(came func()) {
	i.open()
	came()
	if i.device == nil {
		return
	}
	i.lookAtClocks()
	began := time.Now()
	i.inspect()
	for look := 1; look < clockLooks; look++ {
		i.pause(time.Duration(look)*clockPause - time.Since(began))
		i.lookAtClocks()
	}
}

// inspect queries everything except the reasons for slower clocks.
func (i *inspector) inspect() {
	i.name()
	i.identity()
	i.modes()
	i.memory()
	i.damage()
	i.links()
	i.slices()
	i.tune()
}

// name queries the UUID and the bus address.
func (i *inspector) name() {
	i.gpu.UUID = ask(i, i.device.GetUUID, "nvmlDeviceGetUUID")
	i.gpu.Bus = convert(ask(i, i.device.GetPciInfo, "nvmlDeviceGetPciInfo"), busText)
	if bus, ok := i.gpu.Bus.Get(); ok && bus == "" {
		i.gpu.Bus = unread[string](UnknownError)
	}
}

// identity queries the model, the serial number, firmware versions and numbers of the GPU.
func (i *inspector) identity() {
	d, g := i.device, i.gpu
	g.Name = ask(i, d.GetName, "nvmlDeviceGetName")
	g.Serial = ask(i, d.GetSerial, "nvmlDeviceGetSerial")
	g.VBIOS = ask(i, d.GetVbiosVersion, "nvmlDeviceGetVbiosVersion")
	g.GSP = ask(i, d.GetGspFirmwareVersion, "nvmlDeviceGetGspFirmwareVersion")
	g.Numa = ask(i, d.GetNumaNodeId, "nvmlDeviceGetNumaNodeId")
	g.Minor = ask(i, d.GetMinorNumber, "nvmlDeviceGetMinorNumber")
}

// modes queries modes and the load.
func (i *inspector) modes() {
	d, g := i.device, i.gpu
	g.Persist = convert(ask(i, d.GetPersistenceMode, "nvmlDeviceGetPersistenceMode"), enabled)
	g.Compute = convert(ask(i, d.GetComputeMode, "nvmlDeviceGetComputeMode"), func(mode nvml.ComputeMode) int { return int(mode) })
	g.ECC = ask(i, func() (Switch, nvml.Return) { return switchOf(d.GetEccMode()) }, "nvmlDeviceGetEccMode")
	g.MIG = ask(i, func() (Switch, nvml.Return) { return switchOf(d.GetMigMode()) }, "nvmlDeviceGetMigMode")
	g.Load = convert(ask(i, d.GetUtilizationRates, "nvmlDeviceGetUtilizationRates"), func(u nvml.Utilization) int { return int(u.Gpu) })
}

func enabled(state nvml.EnableState) bool { return state == nvml.FEATURE_ENABLED }

// switchOf converts the two values of a mode. NVML has two types with the same number for "on":
// FEATURE_ENABLED and DEVICE_MIG_ENABLE.
func switchOf[T ~int | ~int32 | ~uint32](current, pending T, ret nvml.Return) (Switch, nvml.Return) {
	return Switch{Current: current == 1, Pending: pending == 1}, ret
}

// memory queries the memory and the processes that use it.
func (i *inspector) memory() {
	d, g := i.device, i.gpu
	g.Memory = i.memoryOf(d)
	g.Procs = i.computing(d)
	g.Screen = convert(ask(i, d.GetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses"), processes)
}

// memoryOf queries the memory of a GPU or of an instance.
func (i *inspector) memoryOf(d nvml.Device) Reading[Memory] {
	newer := convert(ask(i, d.GetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo_v2"), func(m nvml.Memory_v2) Memory {
		return Memory{Total: m.Total, Used: m.Used, Reserved: m.Reserved}
	})
	return or(newer, func() Reading[Memory] { // older function, before r510: reserved memory is included in the used memory
		return convert(ask(i, d.GetMemoryInfo, "nvmlDeviceGetMemoryInfo"), func(m nvml.Memory) Memory { return Memory{Total: m.Total, Used: m.Used} })
	})
}

// computing queries the compute processes on a GPU or on an instance.
func (i *inspector) computing(d nvml.Device) Reading[[]Process] {
	return convert(ask(i, d.GetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses"), processes)
}

// tune queries the performance state, the temperature, the power and the clocks.
func (i *inspector) tune() {
	d, g := i.device, i.gpu
	g.State = convert(ask(i, d.GetPerformanceState, "nvmlDeviceGetPerformanceState"), func(state nvml.Pstates) int { return int(state) })
	g.Temperature = convert(ask(i, func() (uint32, nvml.Return) { return d.GetTemperature(nvml.TEMPERATURE_GPU) }, "nvmlDeviceGetTemperature"),
		func(degrees uint32) int { return int(degrees) })
	g.Power = ask(i, func() (Power, nvml.Return) {
		draw, ret := d.GetPowerUsage()
		limit, next := d.GetPowerManagementLimit()
		usual, last := d.GetPowerManagementDefaultLimit()
		return Power{Draw: int(draw), Limit: int(limit), Default: int(usual)}, cmp.Or(ret, next, last)
	}, "nvmlDeviceGetPowerUsage", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
	g.Clocks = ask(i, func() (Clocks, nvml.Return) {
		graphics, ret := d.GetApplicationsClock(nvml.CLOCK_GRAPHICS)
		memory, last := d.GetApplicationsClock(nvml.CLOCK_MEM)
		return Clocks{Graphics: int(graphics), Memory: int(memory)}, cmp.Or(ret, last)
	}, "nvmlDeviceGetApplicationsClock")
}

// processes converts NVML's list of processes.
func processes(infos []nvml.ProcessInfo) []Process {
	const notAvailable = 1<<64 - 1 // NVML_VALUE_NOT_AVAILABLE, as an unsigned long long
	all := make([]Process, 0, len(infos))
	for _, info := range infos {
		p := Process{PID: int(info.Pid), Used: info.UsedGpuMemory}
		if info.UsedGpuMemory == notAvailable {
			p.Used, p.Unknown = 0, true
		}
		all = append(all, p)
	}
	return all
}

// damage queries the recovery action and the error counters.
func (i *inspector) damage() {
	d, g := i.device, i.gpu
	g.Recovery = i.recovery()
	g.Remapped = i.remapped()
	g.Retired = ask(i, func() (Retired, nvml.Return) { return retired(d) }, "nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPagesPendingStatus")
	g.DRAM = or(i.errorsIn(nvml.MEMORY_LOCATION_DRAM), func() Reading[Errors] { // the total of all memories
		return i.errors("nvmlDeviceGetTotalEccErrors", func(kind nvml.MemoryErrorType) (uint64, nvml.Return) {
			return d.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
		})
	})
	newer := convert(ask(i, d.GetSramEccErrorStatus, "nvmlDeviceGetSramEccErrorStatus"), func(s nvml.EccSramErrorStatus) SRAM {
		return SRAM{
			Errors:            Errors{Corrected: s.VolatileCor, Uncorrected: s.VolatileUncParity + s.VolatileUncSecDed},
			ThresholdExceeded: s.BThresholdExceeded != 0,
		}
	})
	g.SRAM = or(newer, func() Reading[SRAM] {
		return convert(i.errorsIn(nvml.MEMORY_LOCATION_SRAM), func(e Errors) SRAM { return SRAM{Errors: e, Unknown: true} })
	})
}

func (i *inspector) remapped() Reading[Remapped] {
	return ask(i, func() (r Remapped, ret nvml.Return) {
		r.Corrected, r.Uncorrected, r.Pending, r.Failed, ret = i.device.GetRemappedRows()
		return r, ret
	}, "nvmlDeviceGetRemappedRows")
}

// recovery queries the recovery action that the driver recommends for the GPU.
func (i *inspector) recovery() Reading[int] {
	if i.device == nil {
		return unread[int](i.gpu.Handle)
	}
	return ask(i, func() (int, nvml.Return) { return oneField(i.device, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 0) }, "nvmlDeviceGetFieldValues")
}

func retired(d nvml.Device) (Retired, nvml.Return) {
	single, ret := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
	double, next := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	pending, last := d.GetRetiredPagesPendingStatus()
	return Retired{SingleBit: len(single), DoubleBit: len(double), Pending: enabled(pending)}, cmp.Or(ret, next, last)
}

// errors queries the error counters of one memory since the last reset. count returns the number of
// errors of one kind by means of the named function.
func (i *inspector) errors(function string, count func(nvml.MemoryErrorType) (uint64, nvml.Return)) Reading[Errors] {
	return ask(i, func() (Errors, nvml.Return) {
		corrected, ret := count(nvml.MEMORY_ERROR_TYPE_CORRECTED)
		uncorrected, last := count(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
		return Errors{Corrected: corrected, Uncorrected: uncorrected}, cmp.Or(ret, last)
	}, function)
}

// errorsIn queries the error counters of the memory at a location.
func (i *inspector) errorsIn(place nvml.MemoryLocation) Reading[Errors] {
	return i.errors("nvmlDeviceGetMemoryErrorCounter", func(kind nvml.MemoryErrorType) (uint64, nvml.Return) {
		return i.device.GetMemoryErrorCounter(kind, nvml.VOLATILE_ECC, place)
	})
}

// links queries the NVLink, PCIe and C2C links.
func (i *inspector) links() {
	d, g := i.device, i.gpu
	g.Fabric = i.fabric()
	g.Links = i.nvlinks()
	g.PCIe = ask(i, func() (PCIe, nvml.Return) { return pcie(d) }, "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
		"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration")
	g.Replays = ask(i, d.GetPcieReplayCounter, "nvmlDeviceGetPcieReplayCounter")
	g.C2C = i.c2c()
}

// c2c queries how many of the links to the CPU are active. If one of them cannot be read, the
// reading has no value, so that the link does not count as down.
func (i *inspector) c2c() Reading[Part] {
	return ask(i, func() (Part, nvml.Return) {
		all, ret := oneField(i.device, nvml.FI_DEV_C2C_LINK_COUNT, 0)
		part := Part{All: all}
		for link := 0; link < all && ret == nvml.SUCCESS; link++ {
			var active int
			active, ret = oneField(i.device, nvml.FI_DEV_C2C_LINK_GET_STATUS, link)
			part.Active += active
		}
		return part, ret
	}, "nvmlDeviceGetFieldValues")
}

func pcie(d nvml.Device) (p PCIe, ret nvml.Return) {
	var rets [4]nvml.Return
	p.Width, rets[0] = d.GetCurrPcieLinkWidth()
	p.MaxWidth, rets[1] = d.GetMaxPcieLinkWidth()
	p.Gen, rets[2] = d.GetCurrPcieLinkGeneration()
	p.MaxGen, rets[3] = d.GetMaxPcieLinkGeneration()
	return p, cmp.Or(rets[:]...)
}

// fabric queries the state in the NVLink fabric, in the newest version of the structure that the
// driver supports. Tests can only provide the first version, because a mock of go-nvml cannot
// construct the result of GetGpuFabricInfoV.
func (i *inspector) fabric() Reading[Fabric] {
	const versioned = "nvmlDeviceGetGpuFabricInfoV"
	v3 := convert(ask(i, func() (nvml.GpuFabricInfo_v3, nvml.Return) { return i.device.GetGpuFabricInfoV().V3() }, versioned),
		func(v nvml.GpuFabricInfo_v3) Fabric {
			f, summary := fabricOf(v.State, v.Status, v.ClusterUuid, v.CliqueId), int(v.HealthSummary)
			f.Summary, f.Mask = &summary, &v.HealthMask
			return f
		})
	v2 := func() Reading[Fabric] {
		return convert(ask(i, func() (nvml.GpuFabricInfo_v2, nvml.Return) { return i.device.GetGpuFabricInfoV().V2() }, versioned),
			func(v nvml.GpuFabricInfo_v2) Fabric {
				f := fabricOf(v.State, v.Status, v.ClusterUuid, v.CliqueId)
				f.Mask = &v.HealthMask
				return f
			})
	}
	return or(v3, v2, func() Reading[Fabric] {
		return convert(ask(i, i.device.GetGpuFabricInfo, "nvmlDeviceGetGpuFabricInfo"), func(v nvml.GpuFabricInfo) Fabric {
			return fabricOf(v.State, v.Status, v.ClusterUuid, v.CliqueId)
		})
	})
}

func fabricOf(state uint8, status uint32, cluster [16]uint8, clique uint32) Fabric {
	return Fabric{State: int(state), Status: named(nvml.Return(status)), Cluster: clusterText(cluster), Clique: clique}
}

// nvlinks queries the links by number, up to the first that the GPU does not have.
func (i *inspector) nvlinks() (all []Link) {
	for link := range nvml.NVLINK_MAX_LINKS {
		active := ask(i, func() (nvml.EnableState, nvml.Return) { return i.device.GetNvLinkState(link) }, "nvmlDeviceGetNvLinkState")
		switch active.Why {
		case NotSupported, InvalidArgument, FunctionNotFound:
			return all
		}
		all = append(all, Link{Index: link, Active: convert(active, enabled)})
	}
	return all
}

// linkTo queries the NVLink status between two GPUs.
func (i *inspector) linkTo(other *inspector) Reading[int] {
	return ask(i, func() (int, nvml.Return) {
		status, ret := i.device.GetP2PStatus(other.device, nvml.P2P_CAPS_INDEX_NVLINK)
		return int(status), ret
	}, "nvmlDeviceGetP2PStatus")
}

// slices queries the instances of a partitioned GPU.
func (i *inspector) slices() {
	if mode, ok := i.gpu.MIG.Get(); !ok || !mode.Current {
		return
	}
	count := ask(i, i.device.GetMaxMigDeviceCount, "nvmlDeviceGetMaxMigDeviceCount").OrZero()
	for n := range min(count, mostInstances) {
		instance, ok := ask(i, func() (nvml.Device, nvml.Return) { return i.device.GetMigDeviceHandleByIndex(n) },
			"nvmlDeviceGetMigDeviceHandleByIndex").Get()
		if !ok {
			continue // count is the possible number of instances; there may be fewer
		}
		i.gpu.MIGs = append(i.gpu.MIGs, MIG{
			UUID: ask(i, instance.GetUUID, "nvmlDeviceGetUUID").OrZero(), Name: ask(i, instance.GetName, "nvmlDeviceGetName").OrZero(),
			Memory: i.memoryOf(instance), Procs: i.computing(instance),
		})
	}
}

// lookAtClocks adds one reading of the reasons for slower clocks to the earlier ones. A failed
// reading does not discard them.
func (i *inspector) lookAtClocks() {
	look := i.reasons()
	before, taken := i.gpu.Slowed.Get()
	if reasons, ok := look.Get(); ok {
		i.gpu.Slowed = read(append(before, reasons))
	} else if !taken {
		i.gpu.Slowed = unread[[]uint64](look.Why)
	}
}

// reasons queries why the clocks are slower than possible, as a bit mask.
func (i *inspector) reasons() Reading[uint64] {
	// The second function is the name of the first before r535.
	return or(ask(i, i.device.GetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksEventReasons"), func() Reading[uint64] {
		return ask(i, i.device.GetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons")
	})
}

// nameProcesses adds the names of processes from /proc, unless this process is in a PID namespace
// in which the driver's PIDs mean other processes.
func nameProcesses(gpus []GPU, root string) {
	if link, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid")); err != nil || link != firstPIDs {
		return
	}
	for _, gpu := range gpus {
		all := [][]Process{gpu.Procs.OrZero(), gpu.Screen.OrZero()}
		for _, instance := range gpu.MIGs {
			all = append(all, instance.Procs.OrZero())
		}
		for _, processes := range all {
			for n := range processes {
				name, _ := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(processes[n].PID), "comm"))
				processes[n].Name = strings.TrimSpace(string(name))
			}
		}
	}
}

// firstPIDs identifies the initial PID namespace (PROC_PID_INIT_INO), to which the PIDs of the
// driver belong. In a container, another process may have the same PID.
const firstPIDs = "pid:[4026531836]"
