package gpu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// recoveryField is NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
	recoveryField = 230
	// mostLinks is NVML_NVLINK_MAX_LINKS.
	mostLinks = 36
	// mostInstances is how many parts the finest cut of a GPU has, and more.
	mostInstances = 64
)

// inspector asks one GPU.
type inspector struct {
	asker
	gpu    *GPU
	device device // nil where it can't be had
}

// open asks for the handle: a GPU that is lost has none.
func (i *inspector) open() {
	function := i.newest("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
	handle := ask(i.asker, func() (device, Return) { return i.lib.Device(i.slot) }, function)
	i.device, i.gpu.Handle = nil, handle.Why
	if d, ok := handle.Get(); ok {
		i.device, i.gpu.Handle = d, Success
	}
}

// inspect asks all but for the clocks.
func (i *inspector) inspect() {
	if i.device == nil {
		return
	}
	i.identity()
	i.modes()
	i.memory()
	i.damage()
	i.links()
	i.slices()
}

func (i *inspector) identity() {
	a, d, g := i.asker, i.device, i.gpu
	g.UUID = ask(a, d.UUID, "nvmlDeviceGetUUID")
	g.Bus = convert(ask(a, d.Bus, i.newest("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")), busText)
	if bus, ok := g.Bus.Get(); ok && bus == "" {
		g.Bus = Unread[string](UnknownError)
	}
	g.Name = ask(a, d.Name, "nvmlDeviceGetName")
	g.Serial = ask(a, d.Serial, "nvmlDeviceGetSerial")
	g.VBIOS = ask(a, d.VBIOS, "nvmlDeviceGetVbiosVersion")
	g.GSP = ask(a, d.GSP, "nvmlDeviceGetGspFirmwareVersion")
	g.Numa = ask(a, d.NUMANode, "nvmlDeviceGetNumaNodeId")
	g.Minor = ask(a, d.Minor, "nvmlDeviceGetMinorNumber")
}

func (i *inspector) modes() {
	a, d, g := i.asker, i.device, i.gpu
	g.Persist = ask(a, d.Persistence, "nvmlDeviceGetPersistenceMode")
	g.Compute = ask(a, d.ComputeMode, "nvmlDeviceGetComputeMode")
	g.ECC = ask(a, d.ECC, "nvmlDeviceGetEccMode")
	g.MIG = ask(a, d.MIGMode, "nvmlDeviceGetMigMode")
	g.Load = ask(a, d.Load, "nvmlDeviceGetUtilizationRates")
}

func (i *inspector) memory() {
	a, d, g := i.asker, i.device, i.gpu
	g.Memory = or(ask(a, d.MemoryV2, "nvmlDeviceGetMemoryInfo_v2"), func() Reading[Memory] {
		return ask(a, d.Memory, "nvmlDeviceGetMemoryInfo")
	})
	g.Procs = ask(a, d.Processes, i.newest("nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"))
}

func (i *inspector) damage() {
	a, d, g := i.asker, i.device, i.gpu
	g.Recovery = ask(a, func() (int, Return) { return oneField(d, recoveryField) }, "nvmlDeviceGetFieldValues")
	g.Remapped = ask(a, d.RemappedRows, "nvmlDeviceGetRemappedRows")
	g.Retired = ask(a, d.RetiredPages, "nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPagesPendingStatus")
	g.DRAM = or(i.errors(inDRAM), func() Reading[Errors] { return i.errors(anywhere) })
	g.SRAM = or(ask(a, d.SRAM, "nvmlDeviceGetSramEccErrorStatus"), func() Reading[SRAM] {
		return convert(i.errors(inSRAM), func(e Errors) SRAM { return SRAM{Errors: e, Unknown: true} })
	})
}

// errors counts those of one kind of memory.
func (i *inspector) errors(place location) Reading[Errors] {
	function := "nvmlDeviceGetMemoryErrorCounter"
	if place == anywhere {
		function = "nvmlDeviceGetTotalEccErrors"
	}
	return ask(i.asker, func() (Errors, Return) {
		corrected, ret := i.device.ErrorCount(false, place)
		if ret != Success {
			return Errors{}, ret
		}
		uncorrected, ret := i.device.ErrorCount(true, place)
		return Errors{Corrected: corrected, Uncorrected: uncorrected}, ret
	}, function)
}

// oneField asks for a field. That the call was well says nothing of it.
func oneField(d device, id uint32) (int, Return) {
	fields, ret := d.Fields(id)
	if ret != Success {
		return 0, ret
	}
	return fields[0].integer()
}

func (i *inspector) links() {
	a, d, g := i.asker, i.device, i.gpu
	g.Fabric = i.fabric()
	g.Links = i.nvlinks()
	g.PCIe = ask(a, func() (PCIe, Return) { return pcie(d) }, "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth",
		"nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration")
	g.Replays = ask(a, d.PCIeReplays, "nvmlDeviceGetPcieReplayCounter")
}

func pcie(d device) (p PCIe, ret Return) {
	if p.Width, p.MaxWidth, ret = d.PCIeWidth(); ret == Success {
		p.Gen, p.MaxGen, ret = d.PCIeGeneration()
	}
	return p, ret
}

// fabric asks for the newest form that the driver knows.
func (i *inspector) fabric() Reading[Fabric] {
	version := func(version int, function string) Reading[Fabric] {
		return ask(i.asker, func() (Fabric, Return) { return i.device.Fabric(version) }, function)
	}
	return or(version(3, "nvmlDeviceGetGpuFabricInfoV"), func() Reading[Fabric] {
		return or(version(2, "nvmlDeviceGetGpuFabricInfoV"), func() Reading[Fabric] {
			return version(1, "nvmlDeviceGetGpuFabricInfo")
		})
	})
}

// nvlinks asks for one link after the other, up to the first that the GPU does
// not have.
func (i *inspector) nvlinks() (all []Link) {
	for link := range mostLinks {
		active := ask(i.asker, func() (bool, Return) { return i.device.LinkActive(link) }, "nvmlDeviceGetNvLinkState")
		switch active.Why {
		case NotSupported, InvalidArgument, FunctionNotFound:
			return all
		}
		all = append(all, Link{Index: link, Active: active})
	}
	return all
}

func (i *inspector) linkTo(other *inspector) Reading[int] {
	return ask(i.asker, func() (int, Return) { return i.device.LinkTo(other.device) }, "nvmlDeviceGetP2PStatus")
}

// slices asks for the instances of a GPU that is cut into several.
func (i *inspector) slices() {
	if mode, ok := i.gpu.MIG.Get(); !ok || !mode.Current {
		return
	}
	count, _ := ask(i.asker, i.device.MIGCount, "nvmlDeviceGetMaxMigDeviceCount").Get()
	for n := range min(count, mostInstances) {
		instance, ok := ask(i.asker, func() (device, Return) { return i.device.MIGDevice(n) }, "nvmlDeviceGetMigDeviceHandleByIndex").Get()
		if !ok {
			continue // as many as there could be, and fewer there are
		}
		id, _ := ask(i.asker, instance.UUID, "nvmlDeviceGetUUID").Get()
		name, _ := ask(i.asker, instance.Name, "nvmlDeviceGetName").Get()
		i.gpu.MIGs = append(i.gpu.MIGs, MIG{UUID: id, Name: name})
	}
}

// lookAtClocks adds one look to those that were taken. One that failed is no
// reason to forget the others.
func (i *inspector) lookAtClocks() {
	if i.device == nil {
		return
	}
	look := or(ask(i.asker, i.device.ClockReasons, "nvmlDeviceGetCurrentClocksEventReasons"), func() Reading[uint64] {
		return ask(i.asker, i.device.ThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons")
	})
	before, taken := i.gpu.Clocks.Get()
	if reasons, ok := look.Get(); ok {
		i.gpu.Clocks = Read(append(before, reasons))
	} else if !taken {
		i.gpu.Clocks = Unread[[]uint64](look.Why)
	}
}

// nameProcesses adds the names that /proc has, if its numbers are the driver's.
func nameProcesses(gpus []GPU, root string) {
	if link, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid")); err != nil || link != firstPIDs {
		return
	}
	for _, gpu := range gpus {
		processes, _ := gpu.Procs.Get()
		for n := range processes {
			name, _ := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(processes[n].PID), "comm"))
			processes[n].Name = strings.TrimSpace(string(name))
		}
	}
}

// firstPIDs is the first namespace of processes (PROC_PID_INIT_INO), whose
// numbers the driver goes by. In a container another process may have the same
// number.
const firstPIDs = "pid:[4026531836]"
