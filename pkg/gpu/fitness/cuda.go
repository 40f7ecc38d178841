package fitness

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// ExpectedCUDA returns what the CUDA driver should show to the job, according to NVML's facts.
// asked is false if the CUDA driver must not be queried: NVML shows the job no GPU that answers, or
// the driver hangs for a GPU, and a CUDA call would hang as well.
func ExpectedCUDA(f gpu.Facts, want Expectation) (should cuda.Expectation, asked bool) {
	if f.Init != gpu.Success || want.HasNoGPUs() {
		return cuda.Expectation{}, false
	}
	if slices.ContainsFunc(f.GPUs, func(g gpu.GPU) bool { return g.Handle == gpu.DriverUnresponsive }) {
		return cuda.Expectation{}, false
	}
	s := evaluation{facts: f, want: want, gpuSelection: selectGPUs(f, want)}
	should = cuda.Expectation{NeedsGPUs: want.NeedsGPUs(), Driver: f.Driver.OrZero()}
	usable := s.answeringGPUs()
	for i, g := range usable {
		should.GPUs = append(should.GPUs, *findingDevice(g))
		should.Partitioned = should.Partitioned || g.MIG.OrZero().Current
		should.MultiNodeFabric = should.MultiNodeFabric || g.Fabric.OrZero().HasJoined() && !g.Fabric.OrZero().IsSingleNode()
		for _, other := range usable[:i] {
			if status, ok := s.p2pStatus(g.Index, other.Index).Get(); ok && status == p2pOK {
				should.NVLinkPairs = append(should.NVLinkPairs, [2]string{other.UUID.OrZero(), g.UUID.OrZero()})
			}
		}
	}
	return should, len(usable) > 0
}
