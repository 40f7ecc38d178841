package gpu

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
)

// linkRules are about how GPUs reach each other and the machine.
var linkRules = []rule{
	{"gpu.fabric", "nvmlDeviceGetGpuFabricInfoV", "joined, healthy, in the same clique as its siblings", judgeFabric},
	{"gpu.nvlink", "nvmlDeviceGetNvLinkState, nvmlDeviceGetP2PStatus", "as many active links as its siblings, which it reaches", judgeNVLink},
	{"gpu.pcie", "nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetCurrPcieLinkGeneration", "all lanes, at full speed under load", judgePCIe},
}

// judgePCIe: replays are not judged. Only their rate means something (DCGM: 0.15
// to 3.84 a minute and lane, by generation), and one look has none.
func judgePCIe(_ scene, g GPU) (o opinion) {
	link, ok := get(&o, "PCIe link", g.PCIe)
	switch {
	case !ok:
		return o
	case link.Width <= 0 || link.MaxWidth <= 0 || link.Gen <= 0 || link.MaxGen <= 0:
		o.say(check.Finding{Verdict: check.Unknown, Class: check.Node, Observed: fmt.Sprintf("x%d of x%d, generation %d of %d: no such link exists", link.Width, link.MaxWidth, link.Gen, link.MaxGen),
			Hint: "look at lspci -vv on the node"})
		return o
	case link.Width < link.MaxWidth:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Expected: fmt.Sprintf("x%d", link.MaxWidth), Observed: fmt.Sprintf("x%d of x%d lanes", link.Width, link.MaxWidth),
			Hint: "drain the node and power-cycle it; have the card, its riser and its slot looked at if lanes stay away"})
	}
	if link.Gen >= link.MaxGen {
		return o
	}
	// An idle GPU lowers the speed of its link to save power.
	if load, ok := get(&o, "load, at a low speed of the PCIe link", g.Load); ok && load > 0 {
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Strict: true, Expected: fmt.Sprintf("generation %d", link.MaxGen),
			Observed: fmt.Sprintf("generation %d of %d, at %d %% load", link.Gen, link.MaxGen, load),
			Hint:     "have the card, its riser and its slot looked at: the link trains to less than it could"})
	}
	return o
}
