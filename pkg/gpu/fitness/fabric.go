package fitness

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// fabricField is a field of the fabric's health mask, laid out as nvml.h has it in NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_…
// and …_WIDTH_…. Fields of two bits have 0 for not supported, 1 for true and 2 for false.
type fabricField struct {
	shift   uint
	width   uint32
	verdict check.Verdict
	words   []string // by the values that nvml.h has; empty: all is well
}

// fabricFields are those of driver 580. DCGM fails on each; a recovery that is on its way ends, so it is waited for.
// NVML_…_PARTITION_ASSIGNED (12, 2 bits) is left out: a node without partitions says false as well, and NO_PARTITION of
// the configuration tells what is wrong.
var fabricFields = []fabricField{
	{0, 0x3, check.Fail, []string{1: "less bandwidth than there should be", 2: ""}},
	{2, 0x3, check.Wait, []string{1: "its routes are being recovered", 2: ""}},
	{4, 0x3, check.Fail, []string{1: "a route is unhealthy", 2: ""}},
	{6, 0x3, check.Wait, []string{1: "it recovers from an access that timed out", 2: ""}},
	{8, 0xf, check.Fail, []string{
		2: "incorrect configuration: SysGUID", 3: "incorrect configuration: serial number of the chassis", 4: "incorrect configuration: no partition",
		5: "incorrect configuration: too few NVLinks", 6: "incorrect configuration: firmware of the GPU", 7: "incorrect configuration: location",
		8: "incorrect configuration: state of the GPU",
	}},
}

const fabricHint = "look at nvidia-fabricmanager (systemctl status, /var/log/fabricmanager.log), and at the switches"

// judgeFabric: CUDA does not begin (802, system not yet initialized) until the fabric manager is done, the classic race
// of a boot: so it is waited for.
func judgeFabric(e *exam) {
	fabric, ok := get(e, "fabric", e.gpu.Fabric)
	if !ok {
		return
	}
	const waits = "start nvidia-fabricmanager on the node (on NVL72, see nvidia-imex and the switches too), or see its log for what it waits for"
	switch {
	case fabric.State == gpu.FabricNone:
		e.cannot("fabric", gpu.NotSupported)
	case fabric.State == gpu.FabricNotYet:
		e.Say(check.Wait, check.Node, "has not begun to join the fabric", "joined", waits)
	case fabric.State == gpu.FabricJoining:
		e.Say(check.Wait, check.Node, "is joining the fabric", "joined", waits)
	case fabric.State != gpu.FabricComplete:
		e.say(check.Unknown, fmt.Sprintf("a state that this bringupd does not know (%d)", fabric.State), fabricHint)
	case fabric.Status == "":
		e.cannot("status of the fabric", "")
	case fabric.Status != gpu.Success:
		e.Fail(check.Node, fmt.Sprintf("could not join the fabric: %s", fabric.Status), "joined", fabricHint)
	default:
		e.judgeFabricHealth(fabric)
		e.judgeClique(fabric)
	}
}

// judgeFabricHealth: what the GPU says where it has joined. "H100 80GB HBM3" has no summary.
func (e *exam) judgeFabricHealth(fabric gpu.Fabric) {
	if fabric.Mask != nil {
		for _, field := range fabricFields {
			e.judgeFabricField(field, *fabric.Mask)
		}
	}
	if fabric.Summary == nil || len(e.Found) > 0 {
		return
	}
	switch summary := *fabric.Summary; summary {
	case 0, 1: // not supported, healthy
	case 2:
		e.Fail(check.Node, "unhealthy, without a word why", "healthy", fabricHint)
	case 3:
		e.Warn(check.Node, "limited capacity", "healthy", fabricHint).Strict = true
	default:
		e.say(check.Unknown, fmt.Sprintf("a summary that this bringupd does not know (%d)", summary), fabricHint)
	}
}

func (e *exam) judgeFabricField(field fabricField, mask uint32) {
	switch value := mask >> field.shift & field.width; {
	case int(value) >= len(field.words):
		e.Say(check.Unknown, check.Node, fmt.Sprintf("health mask 0x%x, of which this bringupd does not know all", mask), "healthy", fabricHint)
	case field.words[value] != "":
		e.Say(field.verdict, check.Node, field.words[value], "healthy", fabricHint)
	}
}

// judgeClique: GPUs of one node are in one clique. Where a fabric manager cuts a node into partitions they needn't be,
// and P2P tells what that does.
func (e *exam) judgeClique(fabric gpu.Fabric) {
	own := clique(fabric)
	members := make(map[string]int)
	for _, other := range e.gpus {
		if f, ok := other.Fabric.Get(); ok && f.Joined() {
			members[clique(f)]++
		}
	}
	for name, n := range members {
		if n > members[own] || n == members[own] && name < own {
			e.Warn(check.Node, "in "+own, "the clique of most of its siblings",
				"look at how the fabric manager or the NVLink domain is partitioned: this GPU reaches its siblings over PCIe at best").Strict = true
			return
		}
	}
}

// clique names the GPUs that reach each other over NVLink.
func clique(f gpu.Fabric) string {
	cluster := f.Cluster
	if f.Single() {
		cluster = "no cluster"
	}
	return fmt.Sprintf("%s, clique %d", prose.Cut(cluster, shown), f.Clique)
}
