package fitness

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// judgePCIe compares a GPU's link with those of its siblings that do no more than it: nvidia-smi's manual says of width
// and generation that they "may be reduced when the GPU is not in use". Virtual machines report more lanes than there are
// ("x8 of x16" on a g4dn and a g6e of AWS), so that the most a link could be tells little. Replays are not judged.
// Only their rate means something (DCGM: 0.15 to 3.84 a minute and lane, by generation), and one look has none.
func judgePCIe(e *exam) {
	link, ok := get(e, "PCIe link", e.gpu.PCIe)
	if !ok {
		return
	}
	if !trained(link) {
		e.say(check.Unknown, fmt.Sprintf("x%d of x%d, generation %d of %d: no such link exists", link.Width, link.MaxWidth, link.Gen, link.MaxGen),
			"look at lspci -vv on the node")
		return
	}
	const hint = "have the card, its riser and its slot looked at: the link trains to less than it could"
	like := e.alike()
	if len(like) == 0 {
		load := e.work()
		e.when(load > 0 && link.Width < link.MaxWidth, check.Warn, fmt.Sprintf("x%d of x%d lanes, at %d %% load", link.Width, link.MaxWidth, load),
			hint, expecting(fmt.Sprintf("x%d", link.MaxWidth)), strictly)
		e.when(load > 0 && link.Gen < link.MaxGen, check.Warn, fmt.Sprintf("generation %d of %d, at %d %% load", link.Gen, link.MaxGen, load),
			hint, expecting(fmt.Sprintf("generation %d", link.MaxGen)), strictly)
		return
	}
	best := link
	for _, sibling := range like {
		if other := sibling.PCIe.OrZero(); noBusier(sibling, e.gpu) {
			best.Width, best.Gen = max(best.Width, other.Width), max(best.Gen, other.Gen)
		}
	}
	e.when(link.Width < best.Width, check.Fail, fmt.Sprintf("x%d of x%d lanes", link.Width, link.MaxWidth),
		"drain the node and power-cycle it; have the card, its riser and its slot looked at if lanes stay away",
		expecting(fmt.Sprintf("x%d, as a sibling has", best.Width)))
	e.when(link.Gen < best.Gen, check.Warn, fmt.Sprintf("generation %d of %d", link.Gen, link.MaxGen), hint,
		expecting(fmt.Sprintf("generation %d, as a sibling has", best.Gen)), strictly)
}

// trained tells whether there can be such a link.
func trained(l gpu.PCIe) bool { return min(l.Width, l.MaxWidth, l.Gen, l.MaxGen) > 0 }

// alike are the other GPUs of the model whose PCIe link is known.
func (e *exam) alike() []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(e.facts.GPUs), func(other gpu.GPU) bool {
		return other.Index == e.gpu.Index || other.Name.OrZero() != e.gpu.Name.OrZero() || !other.Answers() || !trained(other.PCIe.OrZero())
	})
}

// work is the load of the GPU, if it is one: a driver that has just started scrubs the memory, which nvml.h says looks
// like load, and without persistence mode it has started for our question.
func (e *exam) work() int {
	if on, ok := e.gpu.Persist.Get(); ok && !on {
		return 0
	}
	return e.gpu.Load.OrZero()
}

// noBusier tells whether a GPU is known to do no more than another one: it is in no faster state, or, where states are
// not told, has no more load than one that works.
func noBusier(one, other gpu.GPU) bool {
	if one.Load.OrZero() > other.Load.OrZero() {
		return false
	}
	state, told := one.State.Get()
	if fastest, both := other.State.Get(); told && both {
		return state >= fastest
	}
	return other.Load.OrZero() > 0
}

// judgeC2C: a GPU whose links to Grace are all down on a machine where none has any has no Grace: the H100 of a PCIe card
// is the same chip as GH200's.
func judgeC2C(e *exam) {
	links, ok := get(e, "links to the CPU", e.gpu.C2C)
	inUse := func(g gpu.GPU) bool { return g.C2C.OrZero().Active > 0 || g.Numa.Value != nil }
	switch {
	case !ok:
	case links.All == 0, links.Active == 0 && !slices.ContainsFunc(e.facts.GPUs, inUse):
		e.cannot("links to the CPU", gpu.NotSupported)
	default:
		e.when(links.Active < links.All, check.Fail, fmt.Sprintf("%d of %d links to the CPU are active", links.Active, links.All),
			"drain the node and power-cycle it: see nvidia-smi c2c -s", expecting(fmt.Sprintf("%d", links.All)))
	}
}
