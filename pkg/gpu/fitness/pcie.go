package fitness

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// checkPCIe compares a GPU's PCIe link with those of siblings that are not busier, because width
// and generation "may be reduced when the GPU is not in use" (manual of nvidia-smi). The maximum is
// not reliable: virtual machines report more lanes than there are ("x8 of x16" on AWS g4dn and
// g6e). Replays are not checked: only their rate is meaningful (DCGM: 0.15 to 3.84 per minute and
// lane, by generation), and a single query has no rate.
func checkPCIe(e *gpuCheck) {
	link, ok := readValue(e, "PCIe link", e.gpu.PCIe)
	if !ok {
		return
	}
	if !isTrained(link) {
		e.addNodeFinding(check.Unknown, fmt.Sprintf("x%d of x%d, generation %d of %d: not a valid link", link.Width, link.MaxWidth, link.Gen, link.MaxGen),
			"see lspci -vv on the node")
		return
	}
	const hint = "check the card, its riser and its slot: the link is slower than possible"
	// Without other GPUs of the same model, compare with the maximum, but only under load.
	like := slices.DeleteFunc(slices.Clone(e.facts.GPUs), func(other gpu.GPU) bool {
		return other.Index == e.gpu.Index || other.Name.OrZero() != e.gpu.Name.OrZero() || !other.IsUsable() || !isTrained(other.PCIe.OrZero())
	})
	if len(like) == 0 {
		load := e.gpu.LoadPercent.OrZero()
		if on, ok := e.gpu.Persistence.Get(); ok && !on {
			// The driver was started by our own query, and scrubs the memory, which looks like load (nvml.h).
			load = 0
		}
		e.addFindingIf(load > 0 && link.Width < link.MaxWidth, check.Warn, fmt.Sprintf("x%d of x%d lanes, at %d %% load", link.Width, link.MaxWidth, load),
			hint, withExpected(fmt.Sprintf("x%d", link.MaxWidth)), withStrict)
		e.addFindingIf(load > 0 && link.Gen < link.MaxGen, check.Warn, fmt.Sprintf("generation %d of %d, at %d %% load", link.Gen, link.MaxGen, load),
			hint, withExpected(fmt.Sprintf("generation %d", link.MaxGen)), withStrict)
		return
	}
	// Compare with the best link of a sibling that is not busier.
	best := link
	for _, sibling := range like {
		if other := sibling.PCIe.OrZero(); isNoBusier(sibling, e.gpu) {
			best.Width, best.Gen = max(best.Width, other.Width), max(best.Gen, other.Gen)
		}
	}
	e.addFindingIf(link.Width < best.Width, check.Fail, fmt.Sprintf("x%d of x%d lanes", link.Width, link.MaxWidth),
		"drain the node and power-cycle it; if lanes are still missing, check the card, its riser and its slot",
		withExpected(fmt.Sprintf("x%d, as on another GPU of the node", best.Width)))
	e.addFindingIf(link.Gen < best.Gen, check.Warn, fmt.Sprintf("generation %d of %d", link.Gen, link.MaxGen), hint,
		withExpected(fmt.Sprintf("generation %d, as on another GPU of the node", best.Gen)), withStrict)
}

// isTrained reports whether the values of a link are possible.
func isTrained(l gpu.PCIe) bool { return min(l.Width, l.MaxWidth, l.Gen, l.MaxGen) > 0 }

// isNoBusier reports whether the GPU one is known to be no busier than other. It is not if its
// performance state is faster. If the states are unknown, other must have some load and one no more
// than that.
func isNoBusier(one, other gpu.GPU) bool {
	if one.LoadPercent.OrZero() > other.LoadPercent.OrZero() {
		return false
	}
	state, told := one.State.Get()
	if fastest, both := other.State.Get(); told && both {
		return state >= fastest
	}
	return other.LoadPercent.OrZero() > 0
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
		e.addFindingIf(links.Active < links.Total, check.Fail, fmt.Sprintf("%d of %d links to the CPU are active", links.Active, links.Total),
			"drain the node and power-cycle it: see nvidia-smi c2c -s", withExpected(fmt.Sprintf("%d", links.Total)))
	}
}
