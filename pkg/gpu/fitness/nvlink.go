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
// depends on bridges and switches that NVML knows nothing of. Azure fails on any link that is inactive, on machines
// where it knows that all are in use. NVML reports the links of a GPU with MIG as down (DCGM says so), so they say
// nothing.
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
	most := 0
	for _, sibling := range e.siblings(g) {
		n, _, _ := activeLinks(sibling)
		most = max(most, n)
	}
	switch fewer := active < most; {
	case known && fewer, len(down) > 0 && (fewer || switched(g)):
		e.linkFault(switched(g), fmt.Sprintf("%d of %d links are active (down: %s)", active, len(g.Links), numbers(down)),
			fmt.Sprintf("%d active links", max(most, active+len(down))),
			"drain the node and reset its GPUs or reboot; have bridge, baseboard or switch looked at if a link stays down: NCCL would go over PCIe without a word")
	case known && active == 0:
		e.cannot("NVLinks in use", gpu.NotSupported) // cards without a bridge
	default:
		e.judgePairs()
	}
}

// linkFault is a Fail where it is sure that something is broken. Where it may be how the machine was built, or the
// sibling at the other end is another job's, it is only told of: the job will be slow, and no node like this one is
// better. It is a Wait while the fabric is still being set up: before that switches let nobody through.
func (e *exam) linkFault(sure bool, observed, expected, hint string) {
	f := e.Fail(check.Node, observed, expected, hint)
	if !sure {
		f.Verdict, f.Strict = check.Warn, true
		return
	}
	for _, one := range append(e.siblings(e.gpu), e.gpu) {
		if state := one.Fabric.OrZero().State; state == gpu.FabricNotYet || state == gpu.FabricJoining {
			f.Verdict = check.Wait
		}
	}
}

// judgePairs finds a GPU that reaches fewer of its siblings than they reach of each other. Cards that bridges join in
// pairs, and GPUs that are joined in a mesh, all reach the same few, where all of them are the job's. Links can be
// active where P2P is not supported (gpud has met that), and NCCL goes over PCIe then.
func (e *exam) judgePairs() {
	siblings := e.siblings(e.gpu)
	own, broken := e.reaches(e.gpu)
	most := 0
	for _, sibling := range siblings {
		get(e, "P2P", e.p2p(e.gpu.Index, sibling.Index))
		n, _ := e.reaches(sibling)
		most = max(most, n)
	}
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

// judgePCIe: replays are not judged. Only their rate means something (DCGM: 0.15 to 3.84 a minute and lane, by
// generation), and one look has none.
func judgePCIe(e *exam) {
	link, ok := get(e, "PCIe link", e.gpu.PCIe)
	switch {
	case !ok:
		return
	case min(link.Width, link.MaxWidth, link.Gen, link.MaxGen) <= 0:
		e.say(check.Unknown, fmt.Sprintf("x%d of x%d, generation %d of %d: no such link exists", link.Width, link.MaxWidth, link.Gen, link.MaxGen),
			"look at lspci -vv on the node")
		return
	}
	e.when(link.Width < link.MaxWidth, check.Fail, fmt.Sprintf("x%d of x%d lanes", link.Width, link.MaxWidth),
		"drain the node and power-cycle it; have the card, its riser and its slot looked at if lanes stay away", expecting(fmt.Sprintf("x%d", link.MaxWidth)))
	if link.Gen < link.MaxGen { // an idle GPU lowers the speed of its link to save power
		load, _ := get(e, "load, at a low speed of the PCIe link", e.gpu.Load)
		e.when(load > 0, check.Warn, fmt.Sprintf("generation %d of %d, at %d %% load", link.Gen, link.MaxGen, load),
			"have the card, its riser and its slot looked at: the link trains to less than it could",
			expecting(fmt.Sprintf("generation %d", link.MaxGen)), strictly)
	}
}
