package fitness

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// Idle returns the GPUs of the job that may be put to work: whole ones that nobody is known to use. What is left out is
// told of.
func Idle(f gpu.Facts, want Expect) (idle []check.Device, left []check.Finding) {
	if f.Init != gpu.Success || want.Forgone() {
		return nil, []check.Finding{cuda.Rested(nil, "the job has no GPU here that answers")}
	}
	c := choose(f, want)
	if want.Visible == nil && want.Count > 0 && c.seen > want.Count || c.unsure {
		return nil, []check.Finding{cuda.Rested(nil, fmt.Sprintf("which of %d GPUs are the job's is not known: list them in %s, by UUID", c.seen, gpu.VisibleVariable))}
	}
	used := make(map[check.Device]string)
	for _, finding := range Evaluate(f, want) {
		if finding.ID == idBusy && finding.Device != nil && !finding.Quiet() {
			used[*finding.Device] = finding.Observed
		}
	}
	for _, g := range c.usable() {
		device := *deviceOf(g)
		switch user, busy := used[device]; {
		case g.MIG.OrZero().Current:
			left = append(left, cuda.Rested(&device, "it is cut up (MIG), and CUDA shows a process one instance at most"))
		case busy:
			left = append(left, cuda.Rested(&device, "it is in use: "+user))
		case device.UUID == "":
			left = append(left, cuda.Rested(&device, "its UUID can't be read"))
		default:
			idle = append(idle, device)
		}
	}
	if len(idle)+len(left) == 0 {
		left = append(left, cuda.Rested(nil, "the job has no GPU here that answers"))
	}
	return idle, left
}
