//go:build linux && cgo

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlDevice is a device over go-nvml.
type nvmlDevice struct{ api nvml.Device }

var _ device = nvmlDevice{}

func (d nvmlDevice) UUID() (string, Return)   { return answer(d.api.GetUUID()) }
func (d nvmlDevice) Name() (string, Return)   { return answer(d.api.GetName()) }
func (d nvmlDevice) Serial() (string, Return) { return answer(d.api.GetSerial()) }
func (d nvmlDevice) VBIOS() (string, Return)  { return answer(d.api.GetVbiosVersion()) }
func (d nvmlDevice) GSP() (string, Return)    { return answer(d.api.GetGspFirmwareVersion()) }

func (d nvmlDevice) Bus() (string, Return) {
	info, ret := d.api.GetPciInfo()
	text := make([]byte, 0, len(info.BusId))
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text), named(ret)
}

func (d nvmlDevice) NUMANode() (int, Return) { return answer(d.api.GetNumaNodeId()) }
func (d nvmlDevice) Minor() (int, Return)    { return answer(d.api.GetMinorNumber()) }

func (d nvmlDevice) Persistence() (bool, Return) { return enabled(d.api.GetPersistenceMode()) }

func (d nvmlDevice) ComputeMode() (int, Return) {
	mode, ret := d.api.GetComputeMode()
	return int(mode), named(ret)
}

func (d nvmlDevice) ECC() (Switch, Return) {
	current, pending, ret := d.api.GetEccMode()
	return Switch{Current: current == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED}, named(ret)
}

func (d nvmlDevice) MIGMode() (Switch, Return) {
	current, pending, ret := d.api.GetMigMode()
	return Switch{Current: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}, named(ret)
}

func (d nvmlDevice) Memory() (Memory, Return) {
	info, ret := d.api.GetMemoryInfo()
	return Memory{Total: info.Total, Used: info.Used}, named(ret)
}

func (d nvmlDevice) MemoryV2() (Memory, Return) {
	info, ret := d.api.GetMemoryInfo_v2()
	return Memory{Total: info.Total, Used: info.Used, Reserved: info.Reserved}, named(ret)
}

func (d nvmlDevice) Processes() ([]Process, Return) {
	infos, ret := d.api.GetComputeRunningProcesses()
	all := make([]Process, 0, len(infos))
	for _, info := range infos {
		p := Process{PID: int(info.Pid), Used: info.UsedGpuMemory}
		if info.UsedGpuMemory == notAvailable {
			p.Used, p.Unknown = 0, true
		}
		all = append(all, p)
	}
	return all, named(ret)
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE, as an unsigned long long.
const notAvailable = 1<<64 - 1

func (d nvmlDevice) Fields(ids ...uint32) ([]field, Return) {
	values := make([]nvml.FieldValue, len(ids))
	for i, id := range ids {
		values[i].FieldId = id
	}
	ret := d.api.GetFieldValues(values)
	fields := make([]field, len(ids))
	for i, value := range values {
		fields[i] = field{ret: named(nvml.Return(value.NvmlReturn)), kind: value.ValueType, raw: value.Value}
	}
	return fields, named(ret)
}

func (d nvmlDevice) RemappedRows() (Remapped, Return) {
	corrected, uncorrected, pending, failed, ret := d.api.GetRemappedRows()
	return Remapped{Corrected: corrected, Uncorrected: uncorrected, Pending: pending, Failed: failed}, named(ret)
}

func (d nvmlDevice) RetiredPages() (Retired, Return) {
	single, ret := d.api.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
	if ret != nvml.SUCCESS {
		return Retired{}, named(ret)
	}
	double, ret := d.api.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	if ret != nvml.SUCCESS {
		return Retired{}, named(ret)
	}
	pending, ret := d.api.GetRetiredPagesPendingStatus()
	return Retired{SingleBit: len(single), DoubleBit: len(double), Pending: pending == nvml.FEATURE_ENABLED}, named(ret)
}

func (d nvmlDevice) ErrorCount(uncorrected bool, place location) (uint64, Return) {
	kind := nvml.MEMORY_ERROR_TYPE_CORRECTED
	if uncorrected {
		kind = nvml.MEMORY_ERROR_TYPE_UNCORRECTED
	}
	if place == anywhere {
		return answer(d.api.GetTotalEccErrors(kind, nvml.VOLATILE_ECC))
	}
	return answer(d.api.GetMemoryErrorCounter(kind, nvml.VOLATILE_ECC, nvml.MemoryLocation(place)))
}

func (d nvmlDevice) SRAM() (SRAM, Return) {
	status, ret := d.api.GetSramEccErrorStatus()
	return SRAM{
		Errors:            Errors{Corrected: status.VolatileCor, Uncorrected: status.VolatileUncParity + status.VolatileUncSecDed},
		ThresholdExceeded: status.BThresholdExceeded != 0,
	}, named(ret)
}

// Fabric is not for a mock of go-nvml: what GetGpuFabricInfoV returns can't be
// made by others.
func (d nvmlDevice) Fabric(version int) (Fabric, Return) {
	switch version {
	case 3:
		info, ret := d.api.GetGpuFabricInfoV().V3()
		summary, mask := int(info.HealthSummary), info.HealthMask
		fabric := fabricOf(info.State, info.Status, info.ClusterUuid, info.CliqueId)
		fabric.Summary, fabric.Mask = &summary, &mask
		return fabric, named(ret)
	case 2:
		info, ret := d.api.GetGpuFabricInfoV().V2()
		mask := info.HealthMask
		fabric := fabricOf(info.State, info.Status, info.ClusterUuid, info.CliqueId)
		fabric.Mask = &mask
		return fabric, named(ret)
	default:
		info, ret := d.api.GetGpuFabricInfo()
		return fabricOf(info.State, info.Status, info.ClusterUuid, info.CliqueId), named(ret)
	}
}

func fabricOf(state uint8, status uint32, cluster [16]uint8, clique uint32) Fabric {
	return Fabric{State: int(state), Status: named(nvml.Return(status)), Cluster: clusterText(cluster), Clique: clique}
}

func (d nvmlDevice) LinkActive(link int) (bool, Return) { return enabled(d.api.GetNvLinkState(link)) }

func (d nvmlDevice) LinkTo(other device) (int, Return) {
	status, ret := d.api.GetP2PStatus(other.(nvmlDevice).api, nvml.P2P_CAPS_INDEX_NVLINK)
	return int(status), named(ret)
}

func (d nvmlDevice) PCIeWidth() (now, most int, ret Return) {
	return both(d.api.GetCurrPcieLinkWidth, d.api.GetMaxPcieLinkWidth)
}

func (d nvmlDevice) PCIeGeneration() (now, most int, ret Return) {
	return both(d.api.GetCurrPcieLinkGeneration, d.api.GetMaxPcieLinkGeneration)
}

// both asks for what is and for what could be.
func both(ask, askMost func() (int, nvml.Return)) (now, most int, ret Return) {
	now, code := ask()
	if code != nvml.SUCCESS {
		return 0, 0, named(code)
	}
	most, code = askMost()
	return now, most, named(code)
}

func (d nvmlDevice) PCIeReplays() (int, Return) { return answer(d.api.GetPcieReplayCounter()) }

func (d nvmlDevice) Load() (int, Return) {
	rates, ret := d.api.GetUtilizationRates()
	return int(rates.Gpu), named(ret)
}

func (d nvmlDevice) ClockReasons() (uint64, Return) {
	return answer(d.api.GetCurrentClocksEventReasons())
}

func (d nvmlDevice) ThrottleReasons() (uint64, Return) {
	return answer(d.api.GetCurrentClocksThrottleReasons())
}

func (d nvmlDevice) MIGCount() (int, Return) { return answer(d.api.GetMaxMigDeviceCount()) }

func (d nvmlDevice) MIGDevice(index int) (device, Return) {
	handle, ret := d.api.GetMigDeviceHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, named(ret)
	}
	return nvmlDevice{handle}, Success
}

func enabled(state nvml.EnableState, ret nvml.Return) (bool, Return) {
	return state == nvml.FEATURE_ENABLED, named(ret)
}
