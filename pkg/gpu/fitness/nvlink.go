package fitness

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// checkNVLink compares the NVLinks of a GPU with those of its siblings, the GPUs of the same model
// on the node. The expected number of links depends on bridges and switches that NVML does not
// know: an H100 NVL uses 12 of 18 (azurehpc-health-checks#162), a single GPU of a board in a VM has
// no active link, and an RWTH node with two V100 has two of six. For such nodes the comparison with
// other nodes of the job helps. With MIG, NVML reports all links of a GPU as down (according to
// DCGM), so they are ignored.
func checkNVLink(e *gpuCheck) {
	g := e.gpu
	switch {
	case g.MIG.OrZero().Current:
		e.addUnreadable("NVLinks under MIG", gpu.NotSupported)
		return
	case len(g.Links) == 0:
		e.addUnreadable("NVLinks", gpu.NotSupported)
		return
	}
	for _, link := range g.Links {
		readValue(e, "NVLinks", link.Active)
	}
	active, down, known := countActiveLinks(g)
	siblings := e.nvlinkSiblings(g)
	usual := usualCount(g, siblings, func(one gpu.GPU) int { n, _, _ := countActiveLinks(one); return n })
	text := fmt.Sprintf("%d of %d links are active (down: %s)", active, len(g.Links), formatIndices(down))
	const hint = "drain the node and reset its GPUs or reboot; if a link stays down, check " +
		"bridge, baseboard or switch: NCCL would silently use PCIe"
	switch dead := known && active == 0; {
	case active < usual && (known || len(down) > 0):
		e.addLinkFault(isSwitchedBoard(g), text, fmt.Sprintf("%d active links", usual), hint)
	case dead && len(siblings) == 0:
		e.addSkip("no NVLink is active, and there is no other GPU to compare with")
	case dead && isSwitchedBoard(g):
		e.addLinkFault(false, text+"; likewise on the other GPUs", fmt.Sprintf("%d active links", len(g.Links)), hint)
	case dead:
		e.addUnreadable("NVLinks in use", gpu.NotSupported) // cards without a bridge
	default:
		e.checkPairs()
	}
}

// usualCount returns the usual value of much for GPUs of one model on this node: the maximum. In a
// mesh the values depend on the GPU's position, and the machine may have a part of it (in half an
// HGX-1 two GPUs have four links, and two have five). For those, the result is the value of more
// than half of the GPUs, or 0.
func usualCount(g gpu.GPU, siblings []gpu.GPU, much func(gpu.GPU) int) (usual int) {
	having := make(map[int]int)
	for _, one := range append(siblings, g) {
		having[much(one)]++
	}
	for n, gpus := range having {
		if !isMeshedBoard(g) || gpus*2 > len(siblings)+1 {
			usual = max(usual, n)
		}
	}
	return usual
}

// addLinkFault adds a finding about links. It is a Fail if sure is set: something is certainly
// broken. Otherwise the machine may be built so, or the GPU at the other end may belong to another
// job, and it is a Warn: the job will be slow, but on similar nodes as well. While a GPU still
// joins the fabric it is a Wait, because switches do not forward anything before.
func (e *gpuCheck) addLinkFault(sure bool, observed, expected, hint string) {
	joins := func(g gpu.GPU) bool {
		state := g.Fabric.OrZero().State
		return state == gpu.FabricNotStarted || state == gpu.FabricInProgress
	}
	f := e.AddFailure(check.ClassNode, observed, expected, hint)
	switch {
	case slices.ContainsFunc(append(e.nvlinkSiblings(e.gpu), e.gpu), joins):
		f.Verdict = check.Wait
	case !sure:
		f.Verdict, f.Strict = check.Warn, true
	}
}

// checkPairs adds a finding if a GPU reaches fewer siblings than they reach of each other. Cards
// that are bridged in pairs, and GPUs in a mesh, all reach the same number of GPUs if all of them
// belong to the job. Links can be active although P2P is not supported (gpud has observed this);
// NCCL then uses PCIe.
func (e *gpuCheck) checkPairs() {
	siblings := e.nvlinkSiblings(e.gpu)
	own, broken := e.reachableSiblings(e.gpu)
	for _, sibling := range siblings {
		readValue(e, "P2P", e.p2pStatus(e.gpu.Index, sibling.Index))
	}
	usual := usualCount(e.gpu, siblings, func(one gpu.GPU) int { n, _ := e.reachableSiblings(one); return n })
	if len(broken) > 0 && (own < usual || own == 0) {
		e.addLinkFault(isSwitchedBoard(e.gpu) && !isMeshedBoard(e.gpu),
			fmt.Sprintf("P2P over NVLink works with %d of %d other GPUs, not with %s", own,
				len(siblings), strings.Join(broken, ", ")), strconv.Itoa(max(usual, 1)),
			"drain the node, restart nvidia-fabricmanager or reboot, and check nvidia-smi topo "+
				"-p2p n: NCCL would silently use PCIe")
	}
}

// reachableSiblings returns how many siblings a GPU reaches over NVLink, and descriptions of those
// that it is known not to reach.
func (s evaluation) reachableSiblings(g gpu.GPU) (n int, broken []string) {
	for _, sibling := range s.nvlinkSiblings(g) {
		switch status, ok := s.p2pStatus(g.Index, sibling.Index).Get(); {
		case ok && status == p2pOK:
			n++
		case ok:
			broken = append(broken, fmt.Sprintf("GPU %d (%s)", sibling.Index,
				cmp.Or(p2pStatusTexts[status], fmt.Sprintf("status %d", status))))
		}
	}
	return n, broken
}

// nvlinkSiblings returns the node's other GPUs of the same model that answer, have NVLinks and are
// not partitioned by MIG.
func (s evaluation) nvlinkSiblings(g gpu.GPU) []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(s.facts.GPUs), func(other gpu.GPU) bool {
		return other.Index == g.Index || other.Name.OrZero() != g.Name.OrZero() ||
			!other.IsUsable() || other.MIG.OrZero().Current || len(other.Links) == 0
	})
}

// isSwitchedBoard reports whether all links of this kind of GPU are in use, because it is on a
// board with switches, or on a board where GPUs are connected directly (SXM).
func isSwitchedBoard(g gpu.GPU) bool {
	return g.Fabric.OrZero().State != gpu.FabricNotSupported || strings.Contains(g.Name.OrZero(), "SXM")
}

// isMeshedBoard reports whether a GPU is of a kind from before NVSwitch, which may reach only some
// GPUs of its board.
func isMeshedBoard(g gpu.GPU) bool {
	return strings.Contains(g.Name.OrZero(), "V100") || strings.Contains(g.Name.OrZero(), "P100")
}

// countActiveLinks counts the active links and returns the indices of those that are down. known is
// false if a link could not be read.
func countActiveLinks(g gpu.GPU) (active int, down []int, known bool) {
	known = true
	for _, link := range g.Links {
		switch up, ok := link.Active.Get(); {
		case !ok:
			known = false
		case up:
			active++
		default:
			down = append(down, link.Index)
		}
	}
	return active, down, known
}

func (s evaluation) p2pStatus(a, b int) gpu.Reading[int] {
	for _, p := range s.facts.Pairs {
		if p.A == a && p.B == b || p.A == b && p.B == a {
			return p.Status
		}
	}
	return gpu.Reading[int]{}
}

// p2pOK is the value of nvmlGpuP2PStatus_t for a working connection.
const p2pOK = 0

// p2pStatusTexts are the meanings of the other values.
var p2pStatusTexts = map[int]string{
	1: "chipset not supported", 2: "GPU not supported", 3: "topology not supported",
	4: "disabled by a registry key", 5: "not supported", 6: "unknown",
}

func formatIndices(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}

// checkC2C checks that all links to the CPU (Grace) are active. If no GPU of the machine has an
// active link, it has no Grace CPU: a PCIe H100 has the same chip as a GH200.
func checkC2C(e *gpuCheck) {
	links, ok := readValue(e, "links to the CPU", e.gpu.C2C)
	inUse := func(g gpu.GPU) bool { return g.C2C.OrZero().Active > 0 || g.Numa.Value != nil }
	switch {
	case !ok:
	case links.Total == 0, links.Active == 0 && !slices.ContainsFunc(e.facts.GPUs, inUse):
		e.addUnreadable("links to the CPU", gpu.NotSupported)
	default:
		f := e.addFindingIf(links.Active < links.Total, check.Fail,
			fmt.Sprintf("%d of %d links to the CPU are active", links.Active, links.Total),
			"drain the node and power-cycle it: see nvidia-smi c2c -s")
		f.Expected = strconv.Itoa(links.Total)
	}
}
