package gpu

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
)

// modeRules are about how an operator has set a GPU up.
var modeRules = []rule{
	{"gpu.persistence", "nvmlDeviceGetPersistenceMode", "on", judgePersistence},
	{"gpu.mig", "nvmlDeviceGetMigMode", "as the job needs it, and nothing pending", judgeMIG},
	{"gpu.compute_mode", "nvmlDeviceGetComputeMode", "default", judgeCompute},
}

// judgePersistence: gpud calls it unhealthy, Azure switches it on or fails.
func judgePersistence(_ scene, g GPU) (o opinion) {
	if on, ok := get(&o, "persistence mode", g.Persist); ok && !on {
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Strict: true, Observed: "off: the driver starts anew with each first use, and forgets its counters",
			Hint: "run nvidia-persistenced on the node, or nvidia-smi -pm 1"})
	}
	return o
}

func judgeMIG(s scene, g GPU) (o opinion) {
	mig, ok := get(&o, "MIG mode", g.MIG)
	switch {
	case !ok:
	case mig.Current != mig.Pending:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: fmt.Sprintf("MIG is %s, and %s after the next reset", onOff(mig.Current), onOff(mig.Pending)),
			Hint: "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot, or take the change back with nvidia-smi -mig"})
	case mig.Current && s.want.WholeGPUs:
		o.say(check.Finding{Verdict: check.Fail, Class: check.User, Expected: "off", Observed: fmt.Sprintf("MIG is on (%d instances), and the job needs whole GPUs", len(g.MIGs)),
			Hint: "ask for nodes whose GPUs are whole, or switch MIG off (nvidia-smi -mig 0) and reset the GPU"})
	case mig.Current && len(g.MIGs) == 0:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: "MIG is on, and there is no instance to use",
			Hint: "make instances (nvidia-smi mig -cgi … -C), or switch MIG off (nvidia-smi -mig 0) and reset the GPU"})
	}
	return o
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// judgeCompute: by nvmlComputeMode_t.
func judgeCompute(_ scene, g GPU) (o opinion) {
	mode, ok := get(&o, "compute mode", g.Compute)
	if !ok {
		return o
	}
	const hint = "set it to DEFAULT on the node (nvidia-smi -c 0)"
	switch mode {
	case 0:
	case 1, 3:
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Observed: "exclusive: a second process that opens the GPU, as helpers of Ray and NCCL do, gets an error", Hint: hint})
	case 2:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: "prohibited: no process can use the GPU", Hint: hint})
	default:
		o.say(check.Finding{Verdict: check.Unknown, Class: check.Node, Observed: fmt.Sprintf("a mode that this bringupd does not know (%d)", mode), Hint: hint})
	}
	return o
}
