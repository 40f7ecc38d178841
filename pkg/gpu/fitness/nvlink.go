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

// judgeNVLink compares a GPU with its siblings, those of the same model on the node: how many links there should be
// depends on bridges and switches that NVML knows nothing of. NVIDIA's health validation (nvlink_active) and Azure fail on
// any link that is inactive, on machines where they know that all are in use. It is not so on an H100 NVL, which has 12 of
// 18 (azurehpc-health-checks#162), nor where a machine has a part of a board: a lone GPU in a VM has none, and an RWTH
// node with two V100 has two of six. What such a node should have, its likes tell: links are compared among nodes, too.
// NVML reports the links of a GPU with MIG as down (DCGM says so), so they say nothing.
func judgeNVLink(e *exam) {
	g := e.gpu
	switch {
	case g.MIG.OrZero().Current:
		e.cannot("NVLinks under MIG", gpu.NotSupported)
		return
	case len(g.Links) == 0:
		e.cannot("NVLinks", gpu.NotSupported)
		return
	}
	for _, link := range g.Links {
		get(e, "NVLinks", link.Active)
	}
	active, down, known := activeLinks(g)
	siblings := e.siblings(g)
	most := usual(g, siblings, func(one gpu.GPU) int { n, _, _ := activeLinks(one); return n })
	text := fmt.Sprintf("%d of %d links are active (down: %s)", active, len(g.Links), numbers(down))
	const hint = "drain the node and reset its GPUs or reboot; have bridge, baseboard or switch looked at if a link stays down: NCCL would go over PCIe without a word"
	switch dead := known && active == 0; {
	case active < most && (known || len(down) > 0):
		e.linkFault(switched(g), text, fmt.Sprintf("%d active links", most), hint)
	case dead && len(siblings) == 0:
		e.moot("no NVLink is active, and the GPU has no sibling here")
	case dead && (switched(g) || bridged(g)), len(down) > 0 && board(g, siblings):
		e.linkFault(false, text+", on its siblings as well", fmt.Sprintf("%d active links", len(g.Links)), hint)
	case dead:
		e.cannot("NVLinks in use", gpu.NotSupported) // cards without a bridge
	default:
		e.judgePairs()
	}
}

// usual is how much of something the GPUs of one kind have here: as much as the one with the most. In a mesh, of which
// the machine may have a part, they differ by their places (of half an HGX-1 two have four links and two have five), and
// only what more than half of them have tells anything.
func usual(g gpu.GPU, siblings []gpu.GPU, much func(gpu.GPU) int) (most int) {
	having := make(map[int]int)
	for _, one := range append(siblings, g) {
		having[much(one)]++
	}
	for n, gpus := range having {
		if !meshed(g) || gpus*2 > len(siblings)+1 {
			most = max(most, n)
		}
	}
	return most
}

// linkFault is a Fail where it is sure that something is broken. Where it may be how the machine was built, or the
// sibling at the other end is another job's, it is only told of: the job will be slow, and no node like this one is
// better. It is a Wait while the fabric is still being set up: before that switches let nobody through.
func (e *exam) linkFault(sure bool, observed, expected, hint string) {
	joins := func(g gpu.GPU) bool {
		state := g.Fabric.OrZero().State
		return state == gpu.FabricNotYet || state == gpu.FabricJoining
	}
	f := e.Fail(check.Node, observed, expected, hint)
	switch {
	case slices.ContainsFunc(append(e.siblings(e.gpu), e.gpu), joins):
		f.Verdict = check.Wait
	case !sure:
		f.Verdict, f.Strict = check.Warn, true
	}
}

// judgePairs finds a GPU that reaches fewer of its siblings than they reach of each other. Cards that bridges join in
// pairs, and GPUs that are joined in a mesh, all reach the same few, where all of them are the job's. Links can be
// active where P2P is not supported (gpud has met that), and NCCL goes over PCIe then.
func (e *exam) judgePairs() {
	siblings := e.siblings(e.gpu)
	own, broken := e.reaches(e.gpu)
	for _, sibling := range siblings {
		get(e, "P2P", e.p2p(e.gpu.Index, sibling.Index))
	}
	most := usual(e.gpu, siblings, func(one gpu.GPU) int { n, _ := e.reaches(one); return n })
	if len(broken) > 0 && (own < most || own == 0) {
		e.linkFault(switched(e.gpu) && !meshed(e.gpu),
			fmt.Sprintf("reaches %d of %d siblings over NVLink, and not %s", own, len(siblings), strings.Join(broken, ", ")), strconv.Itoa(max(most, 1)),
			"drain the node, restart nvidia-fabricmanager or reboot, and compare nvidia-smi topo -p2p n: NCCL would go over PCIe without a word")
	}
}

// reaches is how many siblings a GPU reaches over NVLink, and which it is known not to.
func (s scene) reaches(g gpu.GPU) (n int, broken []string) {
	for _, sibling := range s.siblings(g) {
		switch status, ok := s.p2p(g.Index, sibling.Index).Get(); {
		case ok && status == p2pOK:
			n++
		case ok:
			broken = append(broken, fmt.Sprintf("GPU %d (%s)", sibling.Index, cmp.Or(p2pWords[status], fmt.Sprintf("status %d", status))))
		}
	}
	return n, broken
}

// siblings are the other GPUs of the model on the node that answer, have NVLinks and are whole.
func (s scene) siblings(g gpu.GPU) []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(s.facts.GPUs), func(other gpu.GPU) bool {
		return other.Index == g.Index || other.Name.OrZero() != g.Name.OrZero() || !other.Answers() || other.MIG.OrZero().Current || len(other.Links) == 0
	})
}

// switched tells whether a GPU is of a kind whose links are all in use: on a board with switches, or soldered to its
// siblings.
func switched(g gpu.GPU) bool {
	return g.Fabric.OrZero().State != gpu.FabricNone || strings.Contains(g.Name.OrZero(), "SXM")
}

// bridged tells whether a card is of a kind that is mostly joined to another by bridges: half of the boots of an Azure
// image left two H100 NVL without their links (azhpc-images#443). They are sold and used without a bridge as well
// (frankdenneman.nl, 2025-09-02), and a VM may have cards of two pairs.
func bridged(g gpu.GPU) bool { return strings.Contains(g.Name.OrZero(), " NVL") }

// board tells whether all links of a GPU lead to switches that are this node's, or its rack's: it has joined their fabric,
// or all eight of an HGX board are here.
func board(g gpu.GPU, siblings []gpu.GPU) bool {
	return !meshed(g) && (g.Fabric.OrZero().State == gpu.FabricComplete || switched(g) && len(siblings) >= 7)
}

// meshed tells whether a GPU is of a kind that may reach only some of those on its board: before there were switches.
func meshed(g gpu.GPU) bool {
	return strings.Contains(g.Name.OrZero(), "V100") || strings.Contains(g.Name.OrZero(), "P100")
}

// activeLinks counts the links that are active, and names those that are down; known is false where one could not be
// read.
func activeLinks(g gpu.GPU) (active int, down []int, known bool) {
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

// p2p is what NVML said of two GPUs.
func (s scene) p2p(a, b int) gpu.Reading[int] {
	for _, p := range s.facts.Pairs {
		if p.A == a && p.B == b || p.A == b && p.B == a {
			return p.Status
		}
	}
	return gpu.Reading[int]{}
}

// p2pOK is nvmlGpuP2PStatus_t's.
const p2pOK = 0

// p2pWords are what its other values mean.
var p2pWords = map[int]string{
	1: "chipset not supported", 2: "GPU not supported", 3: "topology not supported", 4: "disabled by a registry key", 5: "not supported", 6: "unknown",
}

func numbers(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}
