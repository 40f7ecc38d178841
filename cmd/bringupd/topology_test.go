package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// What this machine has is what pkg/binding finds.
func TestTopologyHere(t *testing.T) {
	got := call(t, nil, "topology", "--json", "--ranks-per-node=core", "--bind=cpu")
	var l layout
	if err := json.Unmarshal([]byte(got.out), &l); err != nil || got.code != 0 || got.err != "" {
		t.Fatalf("%+v: %v", got, err)
	}
	var cpus []int
	for _, place := range l.Ranks {
		cpus = append(cpus, place.CPUs...)
	}
	slices.Sort(cpus)
	if l.Version != 1 || l.Host == "" || len(l.Cores) == 0 || !slices.Equal(cpus, l.CPUs) || l.PerNode != "core" || l.Bind != "cpu" {
		t.Errorf("it is %s", got.out)
	}
	if got := call(t, nil, "topology"); got.code != 0 || !strings.Contains(got.out, "allowed here: CPUs "+l.CPUs.String()) {
		t.Errorf("it is %+v", got)
	}
	got = call(t, nil, "topology", "--nvml=/nonexistent/libnvidia-ml.so.1", "--ranks-per-node=1")
	if got.code != 0 || !strings.Contains(got.out, "no GPUs: NVML can't be asked for GPUs: ") || !strings.Contains(got.out, "\n1 rank (--ranks-per-node=1 --bind=auto):\n") {
		t.Errorf("it is %+v", got)
	}
}

func TestTopologyRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"no unit", []string{"--ranks-per-node=socket"}, "cannot use --ranks-per-node=socket: give a number from 1 on, or one of gpu, numa, core"},
		{"no kind", []string{"--bind=cpus"}, "cannot use --bind=cpus: give auto, none, or some of cpu,memory,network,gpu"},
		{"more than any node has", []string{"--ranks-per-node=100000"}, "cannot share this node among 100000 ranks: give at most 8192"},
		{"a driver", []string{"--", "x"}, "cannot take a driver: bringupd topology runs none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, call(t, nil, append([]string{"topology"}, tc.args...)...), 64, tc.says)
		})
	}
	refused(t, call(t, []string{"CUDA_VISIBLE_DEVICES=0-3"}, "topology"), 64, "cannot read CUDA_VISIBLE_DEVICES=0-3")
}

// twoGPUs is a node with a bit of everything.
func twoGPUs() binding.Node {
	n := binding.Node{
		CPUs: binding.Set{0, 1, 2, 3}, Mems: binding.Set{0, 1},
		NUMA: []binding.Memory{{Node: 0, CPUs: binding.Set{0, 1}, Memory: true}, {Node: 1, CPUs: binding.Set{2, 3}}, {Node: 2, Memory: true}, {Node: 3, Memory: true}, {Node: 4}},
		GPUs: []binding.GPU{
			{Name: "0", UUID: "GPU-a", Bus: "0000:1b:00.0", CPUs: binding.Set{0, 1}, NICs: []string{"mlx5_0:1"}},
			{Name: "1", UUID: "GPU-b", Bus: "0000:9b:00.0", NUMA: -1, CPUs: binding.Set{0, 1, 2, 3}, Far: true},
		},
		NICs: []gpu.Card{{Name: "mlx5_0", Bus: "0000:1c:00.0", Ports: []int{1, 2}}, {Name: "mlx5_1", Bus: "0000:9c:00.0", NUMA: 1, Ports: []int{}}},
	}
	for cpu := range 4 {
		n.Cores = append(n.Cores, binding.Core{CPUs: binding.Set{cpu}, Package: cpu / 2, NUMA: cpu / 2})
	}
	return n
}

func TestTopologyText(t *testing.T) {
	l := layout{Host: "n7", Node: twoGPUs(), Bind: "auto"}
	if err := l.share("", binding.Kinds{CPU: true, Memory: true, Network: true, GPU: true}); err != nil {
		t.Fatal(err)
	}
	const want = `n7: 2 packages, 5 NUMA nodes, 4 cores, 4 CPUs
  allowed here: CPUs 0-3 (4 cores), memory nodes 0-1
  NUMA 0: CPUs 0-1
  NUMA 1: CPUs 2-3, no memory
  NUMA 2-3: memory without CPUs
  GPU 0: 0000:1b:00.0 GPU-a, NUMA 0, near CPUs 0-1, mlx5_0:1
  GPU 1: 0000:9b:00.0 GPU-b, near none of the allowed CPUs, or nobody knows
  mlx5_0: 0000:1c:00.0, NUMA 0, ports with a link: 1-2
  mlx5_1: 0000:9c:00.0, NUMA 1, no link
2 ranks (--ranks-per-node=gpu --bind=auto):
  0    CPUs 0-1, GPU 0, mlx5_0:1
  1    CPUs 2-3, GPU 1
`
	if got := l.text(); got != want {
		t.Errorf("it is\n%s", got)
	}
	if err := l.share("5", binding.Kinds{CPU: true}); err != nil || !strings.HasSuffix(l.text(), "\n  each has no CPUs of its own: this node has 5 ranks, and 4 cores that they may use\n") {
		t.Errorf("%v\n%s", err, l.text())
	}
	l.GPUs = nil
	if err := l.share("gpu", binding.Kinds{}); err == nil || !strings.Contains(err.Error(), "it has no GPU for the job") {
		t.Errorf("without GPUs: %v", err)
	}
}
