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

// mostInstances is how many parts the finest cut of a GPU has, and more.
const mostInstances = 64

// inspector asks one GPU, or the machine.
type inspector struct {
	*collector
	slot   int // the GPU's index; system0
	gpu    *GPU
	device nvml.Device // nil where it can't be had
}

// open asks for the handle: a GPU that is lost has none.
func (i *inspector) open() {
	handle := i.handle()
	i.device, _ = handle.Get()
	i.gpu.Handle = cmp.Or(handle.Why, Success)
}

func (i *inspector) handle() Reading[nvml.Device] {
	return ask(i, func() (nvml.Device, nvml.Return) { return i.lib.DeviceGetHandleByIndex(i.slot) }, "nvmlDeviceGetHandleByIndex")
}

// see asks a GPU all there is, and says when it has come.
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

// inspect asks all but for the clocks.
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

// name asks what tells the GPU from others.
func (i *inspector) name() {
	i.gpu.UUID = ask(i, i.device.GetUUID, "nvmlDeviceGetUUID")
	i.gpu.Bus = convert(ask(i, i.device.GetPciInfo, "nvmlDeviceGetPciInfo"), busText)
	if bus, ok := i.gpu.Bus.Get(); ok && bus == "" {
		i.gpu.Bus = unread[string](UnknownError)
	}
}

func (i *inspector) identity() {
	d, g := i.device, i.gpu
	g.Name = ask(i, d.GetName, "nvmlDeviceGetName")
	g.Serial = ask(i, d.GetSerial, "nvmlDeviceGetSerial")
	g.VBIOS = ask(i, d.GetVbiosVersion, "nvmlDeviceGetVbiosVersion")
	g.GSP = ask(i, d.GetGspFirmwareVersion, "nvmlDeviceGetGspFirmwareVersion")
	g.Numa = ask(i, d.GetNumaNodeId, "nvmlDeviceGetNumaNodeId")
	g.Minor = ask(i, d.GetMinorNumber, "nvmlDeviceGetMinorNumber")
}

func (i *inspector) modes() {
	d, g := i.device, i.gpu
	g.Persist = convert(ask(i, d.GetPersistenceMode, "nvmlDeviceGetPersistenceMode"), enabled)
	g.Compute = convert(ask(i, d.GetComputeMode, "nvmlDeviceGetComputeMode"), func(mode nvml.ComputeMode) int { return int(mode) })
	g.ECC = ask(i, func() (Switch, nvml.Return) { return switchOf(d.GetEccMode()) }, "nvmlDeviceGetEccMode")
	g.MIG = ask(i, func() (Switch, nvml.Return) { return switchOf(d.GetMigMode()) }, "nvmlDeviceGetMigMode")
	g.Load = convert(ask(i, d.GetUtilizationRates, "nvmlDeviceGetUtilizationRates"), func(u nvml.Utilization) int { return int(u.Gpu) })
}

func enabled(state nvml.EnableState) bool { return state == nvml.FEATURE_ENABLED }

// switchOf reads the answer about a mode. NVML has two kinds of on, which are one number: FEATURE_ENABLED and
// DEVICE_MIG_ENABLE.
func switchOf[T ~int | ~int32 | ~uint32](current, pending T, ret nvml.Return) (Switch, nvml.Return) {
	return Switch{Current: current == 1, Pending: pending == 1}, ret
}

func (i *inspector) memory() {
	d, g := i.device, i.gpu
	g.Memory = i.memoryOf(d)
	g.Procs = i.computing(d)
	g.Screen = convert(ask(i, d.GetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses"), processes)
}

// memoryOf asks a GPU, or an instance of one, for its memory.
func (i *inspector) memoryOf(d nvml.Device) Reading[Memory] {
	newer := convert(ask(i, d.GetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo_v2"), func(m nvml.Memory_v2) Memory {
		return Memory{Total: m.Total, Used: m.Used, Reserved: m.Reserved}
	})
	return or(newer, func() Reading[Memory] { // before r510: what is reserved counts as used
		return convert(ask(i, d.GetMemoryInfo, "nvmlDeviceGetMemoryInfo"), func(m nvml.Memory) Memory { return Memory{Total: m.Total, Used: m.Used} })
	})
}

// computing asks a GPU, or an instance of one, who computes on it.
func (i *inspector) computing(d nvml.Device) Reading[[]Process] {
	return convert(ask(i, d.GetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses"), processes)
}

// tune asks how fast the GPU may go.
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

func (i *inspector) damage() {
	d, g := i.device, i.gpu
	g.Recovery = i.recovery()
	g.Remapped = i.remapped()
	g.Retired = ask(i, func() (Retired, nvml.Return) { return retired(d) }, "nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPagesPendingStatus")
	g.DRAM = or(i.errorsIn(nvml.MEMORY_LOCATION_DRAM), func() Reading[Errors] { // of all memory, wherever it is
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

// recovery asks for the action that the driver advises.
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

// errors counts those of one kind of memory since the last reset, by a function that counts one kind of error.
func (i *inspector) errors(function string, count func(nvml.MemoryErrorType) (uint64, nvml.Return)) Reading[Errors] {
	return ask(i, func() (Errors, nvml.Return) {
		corrected, ret := count(nvml.MEMORY_ERROR_TYPE_CORRECTED)
		uncorrected, last := count(nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
		return Errors{Corrected: corrected, Uncorrected: uncorrected}, cmp.Or(ret, last)
	}, function)
}

func (i *inspector) errorsIn(place nvml.MemoryLocation) Reading[Errors] {
	return i.errors("nvmlDeviceGetMemoryErrorCounter", func(kind nvml.MemoryErrorType) (uint64, nvml.Return) {
		return i.device.GetMemoryErrorCounter(kind, nvml.VOLATILE_ECC, place)
	})
}

func (i *inspector) links() {
	d, g := i.device, i.gpu
	g.Fabric = i.fabric()
	g.Links = i.nvlinks()
	g.PCIe = ask(i, func() (PCIe, nvml.Return) { return pcie(d) }, "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
		"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration")
	g.Replays = ask(i, d.GetPcieReplayCounter, "nvmlDeviceGetPcieReplayCounter")
	g.C2C = i.c2c()
}

// c2c asks for the links to the CPU. One that can't be read is not one that is down.
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

// fabric asks for the newest form that the driver knows. Of the third and the second a mock of go-nvml can't answer:
// what GetGpuFabricInfoV returns can't be made by others.
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

// nvlinks asks for one link after the other, up to the first that the GPU does not have.
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

// linkTo asks whether NVLink reaches another GPU.
func (i *inspector) linkTo(other *inspector) Reading[int] {
	return ask(i, func() (int, nvml.Return) {
		status, ret := i.device.GetP2PStatus(other.device, nvml.P2P_CAPS_INDEX_NVLINK)
		return int(status), ret
	}, "nvmlDeviceGetP2PStatus")
}

// slices asks for the instances of a GPU that is cut into several.
func (i *inspector) slices() {
	if mode, ok := i.gpu.MIG.Get(); !ok || !mode.Current {
		return
	}
	count := ask(i, i.device.GetMaxMigDeviceCount, "nvmlDeviceGetMaxMigDeviceCount").OrZero()
	for n := range min(count, mostInstances) {
		instance, ok := ask(i, func() (nvml.Device, nvml.Return) { return i.device.GetMigDeviceHandleByIndex(n) },
			"nvmlDeviceGetMigDeviceHandleByIndex").Get()
		if !ok {
			continue // as many as there could be, and fewer there are
		}
		i.gpu.MIGs = append(i.gpu.MIGs, MIG{
			UUID: ask(i, instance.GetUUID, "nvmlDeviceGetUUID").OrZero(), Name: ask(i, instance.GetName, "nvmlDeviceGetName").OrZero(),
			Memory: i.memoryOf(instance), Procs: i.computing(instance),
		})
	}
}

// lookAtClocks adds one look to those that were taken. One that failed is no reason to forget the others.
func (i *inspector) lookAtClocks() {
	look := i.reasons()
	before, taken := i.gpu.Slowed.Get()
	if reasons, ok := look.Get(); ok {
		i.gpu.Slowed = read(append(before, reasons))
	} else if !taken {
		i.gpu.Slowed = unread[[]uint64](look.Why)
	}
}

// reasons asks why the clocks are slower than they could be.
func (i *inspector) reasons() Reading[uint64] {
	// The second is the older name of the same, before r535.
	return or(ask(i, i.device.GetCurrentClocksEventReasons, "nvmlDeviceGetCurrentClocksEventReasons"), func() Reading[uint64] {
		return ask(i, i.device.GetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons")
	})
}

// nameProcesses adds the names that /proc has, if its numbers are the driver's.
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

// firstPIDs is the first namespace of processes (PROC_PID_INIT_INO), whose numbers the driver goes by. In a container
// another process may have the same number.
const firstPIDs = "pid:[4026531836]"
