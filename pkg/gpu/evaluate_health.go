package gpu

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
)

// healthRules are about what a GPU says of itself as a whole.
var healthRules = []rule{
	{"gpu.recovery", "nvmlDeviceGetFieldValues(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)", "no action", judgeRecovery},
	{"gpu.clocks", "nvmlDeviceGetCurrentClocksEventReasons", "not slowed down by its hardware", judgeClocks},
}

// recoveries are the values of nvmlDeviceGpuRecoveryAction_t but for 0, none.
// DCGM's range check drops 5, which driver 575 and newer has.
var recoveries = map[int]struct{ word, hint string }{
	1: {"reset the GPU", "drain the node and reset the GPU (nvidia-smi --gpu-reset)"},
	2: {"reboot the node", "drain and reboot the node"},
	3: {"end all work that reaches it from other GPUs", "drain the node, and end what runs on all of its GPUs: they reach this one"},
	4: {"end all work that reaches it, and reset it", "drain the node, end what runs on all of its GPUs, and reset this one (nvidia-smi --gpu-reset)"},
	5: {"recover the IMEX domain", "restart nvidia-imex on all nodes of the NVLink domain"},
}

// judgeRecovery: what NVIDIA's driver itself advises, from 570 on.
func judgeRecovery(_ scene, g GPU) (o opinion) {
	action, ok := get(&o, "recovery action", g.Recovery)
	if !ok || action == 0 {
		return o
	}
	f := check.Finding{Verdict: check.Fail, Class: check.Node}
	if known, ok := recoveries[action]; ok {
		f.Observed, f.Hint = fmt.Sprintf("the driver asks to %s (%d)", known.word, action), known.hint
	} else {
		f.Observed = fmt.Sprintf("the driver asks for an action that this bringupd does not know (%d)", action)
		f.Hint = "see what nvidia-smi -q says of \"GPU Recovery Action\", and drain the node"
	}
	o.say(f)
	return o
}

// neededLooks is how often a reason must be seen, and no look without it: nvml.h
// says of a slowdown that it "may be also reported during PState or clock
// change". gpud calls a GPU unhealthy at 0.6 a minute over ten minutes, for which
// no gate has the time; Azure only logs it.
const neededLooks = 3

// slowdowns are bits of nvmlClocksEventReasons. The power cap (0x4) and an idle
// GPU (0x1) are as it should be.
var slowdowns = []struct {
	bit    uint64
	word   string
	strict bool
	hint   string
}{
	{0x40, "too hot (HW thermal slowdown)", true, "look at the node's fans, its cooling water and its neighbours' temperatures"},
	{0x80, "power brake (HW power brake slowdown)", true, "look at the node's power supplies: one of them, or the rack, asks the GPUs to take less"},
	{0x20, "warm (SW thermal slowdown)", false, "look at the node's cooling: the GPU is warm before there is any work"},
}

// hwSlowdown is set together with the two above, or alone with no reason given.
const hwSlowdown = 0x8

func judgeClocks(_ scene, g GPU) (o opinion) {
	looks, ok := get(&o, "clock reasons", g.Clocks)
	switch {
	case !ok:
		return o
	case len(looks) < neededLooks:
		o.cannot(fmt.Sprintf("clock reasons, more than %d times", len(looks)), "")
		return o
	}
	always := ^uint64(0)
	for _, look := range looks {
		always &= look
	}
	var words, hints []string
	f := check.Finding{Verdict: check.Warn, Class: check.Node}
	for _, s := range slowdowns {
		if always&s.bit != 0 {
			words, hints, f.Strict = append(words, s.word), append(hints, s.hint), f.Strict || s.strict
		}
	}
	if len(words) == 0 && always&hwSlowdown != 0 {
		words, hints = []string{"the hardware gives no reason (HW slowdown)"}, []string{"look at the GPU's temperature and at the node's power supplies"}
	}
	if len(words) > 0 {
		f.Observed = fmt.Sprintf("clocks are kept down in %d of %d looks: %s", len(looks), len(looks), strings.Join(words, ", "))
		f.Hint = strings.Join(hints, "; ")
		o.say(f)
	}
	return o
}
