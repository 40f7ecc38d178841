package gpu

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
)

// The values of nvmlGpuFabricState_t.
const (
	fabricNone     = 0
	fabricNotYet   = 1
	fabricJoining  = 2
	fabricComplete = 3
)

// fabricField is a field of the fabric's health mask, laid out as nvml.h has it
// in NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_… and …_WIDTH_…. Fields of two bits have
// 0 for not supported, 1 for true and 2 for false.
type fabricField struct {
	shift   uint
	width   uint32
	verdict map[uint32]check.Verdict // but for what is well
	words   map[uint32]string
	known   uint32 // the highest value that nvml.h has
}

// fabricFields are those of driver 580. DCGM fails on each; a recovery that is
// on its way ends, so it is waited for. NVML_…_PARTITION_ASSIGNED (12, 2 bits) is
// left out: a node without partitions says false as well, and NO_PARTITION of the
// configuration tells what is wrong.
var fabricFields = []fabricField{
	{0, 0x3, verdictOf(check.Fail), map[uint32]string{1: "less bandwidth than there should be"}, 2},
	{2, 0x3, verdictOf(check.Wait), map[uint32]string{1: "its routes are being recovered"}, 2},
	{4, 0x3, verdictOf(check.Fail), map[uint32]string{1: "a route is unhealthy"}, 2},
	{6, 0x3, verdictOf(check.Wait), map[uint32]string{1: "it recovers from an access that timed out"}, 2},
	{8, 0xf, nil, map[uint32]string{
		2: "incorrect configuration: SysGUID", 3: "incorrect configuration: serial number of the chassis", 4: "incorrect configuration: no partition",
		5: "incorrect configuration: too few NVLinks", 6: "incorrect configuration: firmware of the GPU", 7: "incorrect configuration: location",
		8: "incorrect configuration: state of the GPU",
	}, 8},
}

// verdictOf is for a field of two bits.
func verdictOf(v check.Verdict) map[uint32]check.Verdict { return map[uint32]check.Verdict{1: v} }

const fabricHint = "look at nvidia-fabricmanager (systemctl status, /var/log/fabricmanager.log), and at the switches"

// judgeFabric: CUDA does not begin (802, system not yet initialized) until the
// fabric manager is done, the classic race of a boot: so it is waited for.
func judgeFabric(s scene, g GPU) (o opinion) {
	fabric, ok := get(&o, "fabric", g.Fabric)
	if !ok {
		return o
	}
	switch {
	case fabric.State == fabricNone:
		o.cannot("fabric", NotSupported)
	case fabric.State == fabricNotYet || fabric.State == fabricJoining:
		word := "has not begun to join the fabric"
		if fabric.State == fabricJoining {
			word = "is joining the fabric"
		}
		o.say(check.Finding{Verdict: check.Wait, Class: check.Node, Observed: word, Expected: "joined",
			Hint: "start nvidia-fabricmanager on the node (on NVL72, see nvidia-imex and the switches too), or see its log for what it waits for"})
	case fabric.State != fabricComplete:
		o.say(check.Finding{Verdict: check.Unknown, Class: check.Node, Observed: fmt.Sprintf("a state that this bringupd does not know (%d)", fabric.State), Hint: fabricHint})
	case fabric.Status == "":
		o.cannot("status of the fabric", "")
	case fabric.Status != Success:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: fmt.Sprintf("could not join the fabric: %s", fabric.Status), Expected: "joined", Hint: fabricHint})
	default:
		judgeFabricHealth(&o, fabric)
		judgeClique(&o, s, fabric)
	}
	return o
}

// judgeFabricHealth: what the GPU says where it has joined. "H100 80GB HBM3" has
// no summary.
func judgeFabricHealth(o *opinion, fabric Fabric) {
	told := false
	if fabric.Mask != nil {
		for _, field := range fabricFields {
			if f, wrong := field.read(*fabric.Mask); wrong {
				told = true
				o.say(f)
			}
		}
	}
	if fabric.Summary == nil || told {
		return
	}
	switch summary := *fabric.Summary; summary {
	case 0, 1: // not supported, healthy
	case 2:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: "unhealthy, without a word why", Expected: "healthy", Hint: fabricHint})
	case 3:
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Strict: true, Observed: "limited capacity", Expected: "healthy", Hint: fabricHint})
	default:
		o.say(check.Finding{Verdict: check.Unknown, Class: check.Node, Observed: fmt.Sprintf("a summary that this bringupd does not know (%d)", summary), Hint: fabricHint})
	}
}

// read returns what is wrong in the field.
func (field fabricField) read(mask uint32) (check.Finding, bool) {
	value := mask >> field.shift & field.width
	f := check.Finding{Verdict: check.Fail, Class: check.Node, Observed: field.words[value], Expected: "healthy", Hint: fabricHint}
	if v, ok := field.verdict[value]; ok {
		f.Verdict = v
	}
	if value > field.known {
		f.Verdict, f.Observed = check.Unknown, fmt.Sprintf("health mask 0x%x, of which this bringupd does not know all", mask)
	}
	return f, f.Observed != ""
}

// judgeClique: GPUs of one node are in one clique. Where a fabric manager cuts a
// node into partitions they needn't be, and P2P tells what that does.
func judgeClique(o *opinion, s scene, fabric Fabric) {
	own := clique(fabric)
	members := make(map[string]int)
	for _, other := range s.gpus {
		if f, ok := other.Fabric.Get(); ok && f.State == fabricComplete && f.Status == Success {
			members[clique(f)]++
		}
	}
	for name, n := range members {
		if n > members[own] || n == members[own] && name < own {
			o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Strict: true, Observed: "in " + own, Expected: "the clique of most of its siblings",
				Hint: "look at how the fabric manager or the NVLink domain is partitioned: this GPU reaches its siblings over PCIe at best"})
			return
		}
	}
}

// clique names the GPUs that reach each other over NVLink.
func clique(f Fabric) string {
	cluster := f.Cluster
	if strings.Trim(cluster, "0-") == "" {
		cluster = "no cluster"
	}
	return fmt.Sprintf("%s, clique %d", clip(cluster), f.Clique)
}
