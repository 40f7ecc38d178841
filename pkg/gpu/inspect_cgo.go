//go:build linux && cgo

package gpu

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxInstances limits the number of instances of a GPU that are queried. It is larger than the
// number of instances that any GPU can have.
const maxInstances = 64

// inspector queries one GPU, or NVML itself, and sets the fields of [inspector.gpu].
type inspector struct {
	*collector
	slot   int // the GPU's index, or systemSlot
	gpu    *GPU
	device nvml.Device // nil if the GPU cannot be opened
}

// openDevice gets the handle of the GPU. A lost GPU has none.
func (i *inspector) openDevice() {
	handle := i.queryHandle()
	i.device, _ = handle.Get()
	i.gpu.Handle = cmp.Or(handle.Reason, Success)
}

func (i *inspector) queryHandle() Reading[nvml.Device] {
	open := func() (nvml.Device, nvml.Return) { return i.lib.DeviceGetHandleByIndex(i.slot) }
	return callNVML(i, open, "nvmlDeviceGetHandleByIndex")
}

// inspectDevice queries everything about the GPU. It calls came as soon as the GPU is initialised.
func (i *inspector) inspectDevice(came func()) {
	i.openDevice()
	came()
	if i.device == nil {
		return
	}
	i.queryAddress()
	i.queryIdentity()
	i.queryMemory()
	i.queryErrors()
	i.gpu.Fabric, i.gpu.Links, i.gpu.C2C = i.queryFabric(), i.queryNVLinks(), i.c2cLinks()
	i.queryInstances()
}

func (i *inspector) queryAddress() {
	i.gpu.UUID = callNVML(i, i.device.GetUUID, "nvmlDeviceGetUUID")
	i.gpu.Bus = mapReading(callNVML(i, i.device.GetPciInfo, "nvmlDeviceGetPciInfo"), formatBusAddress)
	if bus, ok := i.gpu.Bus.Get(); ok && bus == "" {
		i.gpu.Bus = missingReading[string](UnknownError)
	}
}

func (i *inspector) queryIdentity() {
	d, g := i.device, i.gpu
	g.Name = callNVML(i, d.GetName, "nvmlDeviceGetName")
	g.VBIOS = callNVML(i, d.GetVbiosVersion, "nvmlDeviceGetVbiosVersion")
	g.GSP = callNVML(i, d.GetGspFirmwareVersion, "nvmlDeviceGetGspFirmwareVersion")
	g.Numa = callNVML(i, d.GetNumaNodeId, "nvmlDeviceGetNumaNodeId")
	g.Persistence = mapReading(callNVML(i, d.GetPersistenceMode, "nvmlDeviceGetPersistenceMode"), isEnabled)
	g.ComputeMode = mapReading(callNVML(i, d.GetComputeMode, "nvmlDeviceGetComputeMode"),
		func(mode nvml.ComputeMode) int { return int(mode) })
	g.MIG = callNVML(i, func() (ModeState, nvml.Return) {
		current, pending, ret := d.GetMigMode()
		return ModeState{current == nvml.DEVICE_MIG_ENABLE, pending == nvml.DEVICE_MIG_ENABLE}, ret
	}, "nvmlDeviceGetMigMode")
}

func isEnabled(state nvml.EnableState) bool { return state == nvml.FEATURE_ENABLED }

func (i *inspector) queryMemory() {
	d, g := i.device, i.gpu
	g.Memory = i.memoryInfo(d)
	g.Processes = i.computeProcesses(d)
	g.GraphicsProcesses = mapReading(
		callNVML(i, d.GetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses"), convertProcesses)
}

func (i *inspector) memoryInfo(d nvml.Device) Reading[Memory] {
	newer := mapReading(callNVML(i, d.GetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo_v2"), func(m nvml.Memory_v2) Memory {
		return Memory{Total: m.Total, Used: m.Used}
	})
	// older function, before r510: reserved memory is included in the used memory
	return firstSupported(newer, func() Reading[Memory] {
		return mapReading(callNVML(i, d.GetMemoryInfo, "nvmlDeviceGetMemoryInfo"),
			func(m nvml.Memory) Memory { return Memory{Total: m.Total, Used: m.Used} })
	})
}

func (i *inspector) computeProcesses(d nvml.Device) Reading[[]Process] {
	return mapReading(
		callNVML(i, d.GetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses"), convertProcesses)
}

func convertProcesses(infos []nvml.ProcessInfo) []Process {
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

func (i *inspector) remappedRows() Reading[RemappedRows] {
	return callNVML(i, func() (r RemappedRows, ret nvml.Return) {
		_, r.Uncorrected, r.Pending, r.Failed, ret = i.device.GetRemappedRows()
		return r, ret
	}, "nvmlDeviceGetRemappedRows")
}

func (i *inspector) recoveryAction() Reading[int] {
	if i.device == nil {
		return missingReading[int](i.gpu.Handle)
	}
	action := func() (int, nvml.Return) { return queryIntField(i.device, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 0) }
	return callNVML(i, action, "nvmlDeviceGetFieldValues")
}

func (i *inspector) queryErrors() {
	d, g := i.device, i.gpu
	g.Recovery = i.recoveryAction()
	g.Remapped = i.remappedRows()
	g.Retired = callNVML(i, func() (RetiredPages, nvml.Return) { return retiredPages(d) },
		"nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPagesPendingStatus")
	g.DRAM = firstSupported(i.uncorrectedIn(nvml.MEMORY_LOCATION_DRAM), func() Reading[MemoryErrors] {
		// the total of all memories
		total := func() (uint64, nvml.Return) {
			return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		}
		return mapReading(callNVML(i, total, "nvmlDeviceGetTotalEccErrors"), newMemoryErrors)
	})
	newer := mapReading(callNVML(i, d.GetSramEccErrorStatus, "nvmlDeviceGetSramEccErrorStatus"),
		func(s nvml.EccSramErrorStatus) MemoryErrors {
			return MemoryErrors{s.VolatileUncParity + s.VolatileUncSecDed, s.BThresholdExceeded != 0}
		})
	g.SRAM = firstSupported(newer, func() Reading[MemoryErrors] { return i.uncorrectedIn(nvml.MEMORY_LOCATION_SRAM) })
}

func (i *inspector) uncorrectedIn(place nvml.MemoryLocation) Reading[MemoryErrors] {
	count := func() (uint64, nvml.Return) {
		return i.device.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC, place)
	}
	return mapReading(callNVML(i, count, "nvmlDeviceGetMemoryErrorCounter"), newMemoryErrors)
}

func newMemoryErrors(uncorrected uint64) MemoryErrors { return MemoryErrors{Uncorrected: uncorrected} }

func retiredPages(d nvml.Device) (RetiredPages, nvml.Return) {
	single, ret := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
	double, next := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	pending, last := d.GetRetiredPagesPendingStatus()
	return RetiredPages{SingleBit: len(single), DoubleBit: len(double),
		Pending: isEnabled(pending)}, cmp.Or(ret, next, last)
}

// c2cLinks queries how many of the links to the CPU are active. If one of them cannot be read, the
// reading has no value, so that the link does not count as down.
func (i *inspector) c2cLinks() Reading[LinkCount] {
	return callNVML(i, func() (LinkCount, nvml.Return) {
		all, ret := queryIntField(i.device, nvml.FI_DEV_C2C_LINK_COUNT, 0)
		part := LinkCount{Total: all}
		for link := 0; link < all && ret == nvml.SUCCESS; link++ {
			var active int
			active, ret = queryIntField(i.device, nvml.FI_DEV_C2C_LINK_GET_STATUS, link)
			part.Active += active
		}
		return part, ret
	}, "nvmlDeviceGetFieldValues")
}

// queryFabric queries the state in the NVLink fabric, in the newest version of the structure that
// the driver supports. Tests can only provide the first version, because a mock of go-nvml cannot
// construct the result of GetGpuFabricInfoV.
func (i *inspector) queryFabric() Reading[Fabric] {
	const versioned = "nvmlDeviceGetGpuFabricInfoV"
	third := func() (nvml.GpuFabricInfo_v3, nvml.Return) { return i.device.GetGpuFabricInfoV().V3() }
	second := func() (nvml.GpuFabricInfo_v2, nvml.Return) { return i.device.GetGpuFabricInfoV().V2() }
	newest := mapReading(callNVML(i, third, versioned), func(v nvml.GpuFabricInfo_v3) Fabric {
		f, summary := newFabric(v.State, v.Status, v.ClusterUuid, v.CliqueId), int(v.HealthSummary)
		f.Summary, f.Mask = &summary, &v.HealthMask
		return f
	})
	return firstSupported(newest, func() Reading[Fabric] {
		return mapReading(callNVML(i, second, versioned), func(v nvml.GpuFabricInfo_v2) Fabric {
			f := newFabric(v.State, v.Status, v.ClusterUuid, v.CliqueId)
			f.Mask = &v.HealthMask
			return f
		})
	}, func() Reading[Fabric] {
		oldest := callNVML(i, i.device.GetGpuFabricInfo, "nvmlDeviceGetGpuFabricInfo")
		return mapReading(oldest, func(v nvml.GpuFabricInfo) Fabric {
			return newFabric(v.State, v.Status, v.ClusterUuid, v.CliqueId)
		})
	})
}

func newFabric(state uint8, status uint32, cluster [16]uint8, clique uint32) Fabric {
	return Fabric{
		State: int(state), Status: returnName(nvml.Return(status)), Cluster: formatClusterUUID(cluster), Clique: clique,
	}
}

// queryNVLinks queries the links by number, up to the first that the GPU does not have.
func (i *inspector) queryNVLinks() (all []NVLink) {
	for link := range nvml.NVLINK_MAX_LINKS {
		state := func() (nvml.EnableState, nvml.Return) { return i.device.GetNvLinkState(link) }
		active := callNVML(i, state, "nvmlDeviceGetNvLinkState")
		switch active.Reason {
		case NotSupported, InvalidArgument, FunctionNotFound:
			return all
		}
		all = append(all, NVLink{Index: link, Active: mapReading(active, isEnabled)})
	}
	return all
}

func (i *inspector) nvlinkStatusTo(other *inspector) Reading[int] {
	return callNVML(i, func() (int, nvml.Return) {
		status, ret := i.device.GetP2PStatus(other.device, nvml.P2P_CAPS_INDEX_NVLINK)
		return int(status), ret
	}, "nvmlDeviceGetP2PStatus")
}

func (i *inspector) queryInstances() {
	if mode, ok := i.gpu.MIG.Get(); !ok || !mode.Current {
		return
	}
	count := callNVML(i, i.device.GetMaxMigDeviceCount, "nvmlDeviceGetMaxMigDeviceCount").OrZero()
	for n := range min(count, maxInstances) {
		instance, ok := callNVML(i, func() (nvml.Device, nvml.Return) { return i.device.GetMigDeviceHandleByIndex(n) },
			"nvmlDeviceGetMigDeviceHandleByIndex").Get()
		if !ok {
			continue // count is the possible number of instances; there may be fewer
		}
		i.gpu.MIGInstances = append(i.gpu.MIGInstances, MIGInstance{
			UUID:   callNVML(i, instance.GetUUID, "nvmlDeviceGetUUID").OrZero(),
			Name:   callNVML(i, instance.GetName, "nvmlDeviceGetName").OrZero(),
			Memory: i.memoryInfo(instance), Processes: i.computeProcesses(instance),
		})
	}
}

// addProcessNames adds the names of processes from /proc, unless this process is in a PID namespace
// in which the driver's PIDs mean other processes.
func addProcessNames(gpus []GPU, root string) {
	if link, err := os.Readlink(filepath.Join(root, "proc/self/ns/pid")); err != nil || link != initialPIDNamespace {
		return
	}
	for _, gpu := range gpus {
		all := [][]Process{gpu.Processes.OrZero(), gpu.GraphicsProcesses.OrZero()}
		for _, instance := range gpu.MIGInstances {
			all = append(all, instance.Processes.OrZero())
		}
		for _, processes := range all {
			for n := range processes {
				name, _ := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(processes[n].PID), "comm"))
				processes[n].Name = strings.TrimSpace(string(name))
			}
		}
	}
}

// initialPIDNamespace identifies the initial PID namespace (PROC_PID_INIT_INO), to which the PIDs
// of the driver belong. In a container, another process may have the same PID.
const initialPIDNamespace = "pid:[4026531836]"
