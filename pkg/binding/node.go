package binding

import (
	"cmp"
	"slices"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// Node is what there is for ranks on a machine, and what of it this process may use.
type Node struct {
	Cores []Core   `json:"cores"` // by package, NUMA node and number
	NUMA  []Memory `json:"numa"`
	// CPUs and Mems are those that this process may use: its cpuset's, and its affinity's.
	CPUs Set        `json:"allowed_cpus"`
	Mems Set        `json:"allowed_memory"`
	GPUs []GPU      `json:"gpus"` // the job's, in its order
	NICs []gpu.Card `json:"nics"`
}

// Core is a physical core.
type Core struct {
	CPUs    Set `json:"cpus"` // its hyperthreads that are online
	Package int `json:"package"`
	NUMA    int `json:"numa"` // -1: the kernel knows no NUMA nodes
}

// Memory is a NUMA node. The memory of some GPUs is one of its own, without CPUs.
type Memory struct {
	Node   int  `json:"node"`
	CPUs   Set  `json:"cpus"`
	Memory bool `json:"memory"` // it has some
}

// GPU is a GPU that the job has, or one of the instances that a GPU is cut into.
type GPU struct {
	Name   string     `json:"name"`             // in its vendor's variable: CUDA_VISIBLE_DEVICES
	Vendor gpu.Vendor `json:"vendor,omitempty"` // empty: NVIDIA
	Index  int        `json:"index"`
	UUID   string     `json:"uuid"`
	Bus    string     `json:"bus"`
	NUMA   int        `json:"numa"`         // -1: not known
	CPUs   Set        `json:"cpus"`         // the near ones of those that are allowed; where there are none, all of these
	Far    bool       `json:"far,omitzero"` // there are none, or nobody knows
	// NICs are the nearest RDMA devices, as in NIC.
	NICs []string `json:"nics"`
}

// Unit is what one rank is started for.
type Unit string

// The units that a node's ranks are counted by.
const (
	PerGPU  Unit = "gpu"
	PerNUMA Unit = "numa"
	PerCore Unit = "core"
)

// Slots returns how many ranks the node gets where each has one unit for its own: its GPUs (or their instances), its
// NUMA nodes that have CPUs, its physical cores; those of them that this process may use.
func (n Node) Slots(unit Unit) int {
	cores := n.allowed()
	switch unit {
	case PerGPU:
		return len(n.GPUs)
	case PerNUMA:
		return len(chunks(cores, Core.numa))
	}
	return len(cores)
}

// allowed are the cores of which this process may use at least a hyperthread, with those that it may use.
func (n Node) allowed() (cores []Core) {
	for _, c := range n.Cores {
		if c.CPUs = c.CPUs.and(n.CPUs); len(c.CPUs) > 0 {
			cores = append(cores, c)
		}
	}
	return cores
}

func (c Core) numa() int { return c.NUMA }
func (c Core) pack() int { return c.Package }

// compare sorts cores so that those that share most are side by side.
func (c Core) compare(other Core) int {
	return cmp.Or(cmp.Compare(c.Package, other.Package), cmp.Compare(c.NUMA, other.NUMA), slices.Compare(c.CPUs, other.CPUs))
}

// chunks parts sorted cores by what they have in common.
func chunks(cores []Core, by func(Core) int) (parts [][]Core) {
	for at, c := range cores {
		if at == 0 || by(c) != by(cores[at-1]) {
			parts = append(parts, nil)
		}
		last := &parts[len(parts)-1]
		*last = append(*last, c)
	}
	return parts
}

// cpusOf are the CPUs of some cores.
func cpusOf(cores []Core) (all Set) {
	for _, c := range cores {
		all = append(all, c.CPUs...)
	}
	return newSet(all)
}
