package fitness

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// CUDA returns what the CUDA driver should show to the job, according to NVML's facts. asked is
// false if the CUDA driver must not be queried: NVML shows the job no GPU that answers, or the
// driver hangs for a GPU, and a CUDA call would hang as well.
func CUDA(f gpu.Facts, want Expect) (should cuda.Want, asked bool) {
	if f.Init != gpu.Success || want.Forgone() {
		return cuda.Want{}, false
	}
	if slices.ContainsFunc(f.GPUs, func(g gpu.GPU) bool { return g.Handle == gpu.DriverUnresponsive }) {
		return cuda.Want{}, false
	}
	s := scene{facts: f, want: want, choice: choose(f, want)}
	should = cuda.Want{Needed: want.Needed(), Driver: f.Driver.OrZero()}
	usable := s.usable()
	for i, g := range usable {
		should.GPUs = append(should.GPUs, *deviceOf(g))
		should.MIG = should.MIG || g.MIG.OrZero().Current
		should.Fabric = should.Fabric || g.Fabric.OrZero().Joined() && !g.Fabric.OrZero().Single()
		for _, other := range usable[:i] {
			if status, ok := s.p2p(g.Index, other.Index).Get(); ok && status == p2pOK {
				should.Joined = append(should.Joined, [2]string{other.UUID.OrZero(), g.UUID.OrZero()})
			}
		}
	}
	return should, len(usable) > 0
}
