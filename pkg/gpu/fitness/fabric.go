package fitness

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// fabricField is a field of the fabric's health mask, as nvml.h defines it by
// NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_… and …_WIDTH_…. In fields of two bits 0 is "not
// supported", 1 is "true" and 2 is "false".
type fabricField struct {
	shift   uint
	width   uint32
	verdict check.Verdict
	texts   []string // indexed by the values in nvml.h; an empty text means healthy
}

// fabricFields are the fields that driver 580 has. DCGM fails on each of them. A recovery in
// progress will end, so its verdict is Wait. NVML_…_PARTITION_ASSIGNED (shift 12, 2 bits) is left
// out: it is false on nodes without partitions as well, and a missing partition shows in the value
// NO_PARTITION of the configuration field.
var fabricFields = []fabricField{
	{0, 0x3, check.Fail, []string{1: "degraded bandwidth", 2: ""}},
	{2, 0x3, check.Wait, []string{1: "route recovery in progress", 2: ""}},
	{4, 0x3, check.Fail, []string{1: "unhealthy route", 2: ""}},
	{6, 0x3, check.Wait, []string{1: "access timeout recovery in progress", 2: ""}},
	{8, 0xf, check.Fail, []string{
		2: "incorrect configuration: SysGUID", 3: "incorrect configuration: chassis serial number",
		4: "incorrect configuration: no partition",
		5: "incorrect configuration: too few NVLinks", 6: "incorrect configuration: GPU firmware",
		7: "incorrect configuration: location",
		8: "incorrect configuration: GPU state",
	}},
}

const fabricHint = "check nvidia-fabricmanager (systemctl status, /var/log/fabricmanager.log) and the switches"

// checkFabric checks whether the GPU has joined its NVLink fabric. CUDA fails with error 802
// (system not yet initialized) until the fabric manager is ready. This is a common race after
// booting, so the check waits for it.
func checkFabric(e *gpuCheck) {
	fabric, ok := readValue(e, "fabric", e.gpu.Fabric)
	if !ok {
		return
	}
	const waits = "start nvidia-fabricmanager on the node, or see its log for what it waits for " +
		"(on NVL72, also check nvidia-imex and the switches)"
	switch {
	case fabric.State == gpu.FabricNotSupported:
		e.addUnreadable("fabric", gpu.NotSupported)
	case fabric.State == gpu.FabricNotStarted:
		e.AddFinding(check.Wait, check.ClassNode, "has not started to join the fabric", "joined", waits)
	case fabric.State == gpu.FabricInProgress:
		e.AddFinding(check.Wait, check.ClassNode, "is joining the fabric", "joined", waits)
	case fabric.State != gpu.FabricCompleted:
		e.addNodeFinding(check.Unknown, fmt.Sprintf("unknown state (%d)", fabric.State), fabricHint)
	case fabric.Status == "":
		e.addUnreadable("fabric status", "")
	case fabric.Status != gpu.Success:
		e.AddFailure(check.ClassNode, fmt.Sprintf("cannot join the fabric: %s", fabric.Status), "joined", fabricHint)
	default:
		e.checkFabricHealth(fabric)
	}
}

// checkFabricHealth checks the health that a GPU in the fabric reports. Some models (H100 80GB
// HBM3) have no summary.
func (e *gpuCheck) checkFabricHealth(fabric gpu.Fabric) {
	if fabric.Mask != nil {
		for _, field := range fabricFields {
			switch value := *fabric.Mask >> field.shift & field.width; {
			case int(value) >= len(field.texts):
				e.AddFinding(check.Unknown, check.ClassNode,
					fmt.Sprintf("health mask 0x%x has unknown values", *fabric.Mask), "healthy", fabricHint)
			case field.texts[value] != "":
				e.AddFinding(field.verdict, check.ClassNode, field.texts[value], "healthy", fabricHint)
			}
		}
	}
	if fabric.Summary == nil || len(e.Findings) > 0 {
		return
	}
	switch summary := *fabric.Summary; summary {
	case 0, 1: // not supported or healthy
	case 2:
		e.AddFailure(check.ClassNode, "unhealthy, no reason given", "healthy", fabricHint)
	case 3:
		e.AddWarning(check.ClassNode, "limited capacity", "healthy", fabricHint).Strict = true
	default:
		e.addNodeFinding(check.Unknown, fmt.Sprintf("unknown health summary (%d)", summary), fabricHint)
	}
}
