package ranks

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// twoGPUs returns a node with some of every kind of device.
func twoGPUs() affinity.Node {
	n := affinity.Node{
		CPUs: affinity.IDSet{0, 1, 2, 3}, Mems: affinity.IDSet{0, 1},
		NUMA: []affinity.NUMANode{{Number: 0, CPUs: affinity.IDSet{0, 1}},
			{Number: 1, CPUs: affinity.IDSet{2, 3}}, {Number: 2}},
		GPUs: []affinity.GPU{
			{Name: "0", UUID: "GPU-a", Bus: "0000:1b:00.0", CPUs: affinity.IDSet{0, 1}, NICs: []string{"mlx5_0:1"}},
			{Name: "1", UUID: "GPU-b", Bus: "0000:9b:00.0", NUMA: -1, CPUs: affinity.IDSet{0, 1, 2, 3}, IsFar: true},
		},
		NICs: []gpu.RDMADevice{{Name: "mlx5_0", Bus: "0000:1c:00.0", Ports: []int{1, 2}},
			{Name: "mlx5_1", Bus: "0000:9c:00.0", NUMA: 1, Ports: []int{}}},
	}
	for cpu := range 4 {
		n.Cores = append(n.Cores, affinity.Core{CPUs: affinity.IDSet{cpu}, Package: cpu / 2, NUMA: cpu / 2})
	}
	return n
}

func TestLayout(t *testing.T) {
	l, err := PlanLayout(twoGPUs(), "", affinity.AllKinds())
	if err != nil {
		t.Fatal(err)
	}
	l.Host = "n7"
	const want = `n7: 2 packages, 3 NUMA nodes, 4 cores, 4 CPUs
  allowed here: CPUs 0-3 (4 cores), memory nodes 0-1
  NUMA 0: CPUs 0-1
  NUMA 1: CPUs 2-3
  GPU 0: 0000:1b:00.0 GPU-a, NUMA 0, near CPUs 0-1, mlx5_0:1
  GPU 1: 0000:9b:00.0 GPU-b, near none of the allowed CPUs, or unknown
  mlx5_0: 0000:1c:00.0, NUMA 0, ports with a link: 1-2
  mlx5_1: 0000:9c:00.0, NUMA 1, no link
2 ranks (--ranks-per-node=gpu --bind=auto):
  0    CPUs 0-1, memory 0, GPU 0, mlx5_0:1
  1    CPUs 2-3, memory 1, GPU 1
`
	if got := l.FormatText(); got != want {
		t.Errorf("it is\n%s", got)
	}
	l, err = PlanLayout(twoGPUs(), "5", affinity.ResourceKinds{CPU: true})
	if err != nil || !strings.HasSuffix(l.FormatText(),
		"\n  note: ranks are not bound to CPUs: this node has 5 ranks, but only 4 usable cores\n") {
		t.Errorf("%v\n%s", err, l.FormatText())
	}
	l.GPUs = nil
	if _, err := PlanLayout(l.Node, "gpu", affinity.ResourceKinds{}); err == nil ||
		!strings.Contains(err.Error(), "it has no GPU for the job") {
		t.Errorf("without GPUs: %v", err)
	}
}
