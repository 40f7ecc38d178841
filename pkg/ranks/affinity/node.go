package affinity

import (
	"cmp"
	"slices"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// Node describes the hardware of a machine for ranks, and which part of it this process may use.
type Node struct {
	Cores []Core     `json:"cores"` // sorted by package, NUMA node and number
	NUMA  []NUMANode `json:"numa"`
	// CPUs are those that this process may use, according to its cpuset and its CPU affinity. Mems are
	// the NUMA nodes with CPUs whose memory it may use; that of GPUs is managed by CUDA.
	CPUs IDSet            `json:"allowed_cpus"`
	Mems IDSet            `json:"allowed_memory"`
	GPUs []GPU            `json:"gpus"` // GPUs of the job, in the job's order
	NICs []gpu.RDMADevice `json:"nics"`
}

// Core is a physical core.
type Core struct {
	CPUs    IDSet `json:"cpus"` // online hardware threads
	Package int   `json:"package"`
	NUMA    int   `json:"numa"` // -1 if the kernel has no NUMA support
}

// NUMANode is a NUMA node. Some GPUs have a separate NUMA node for their memory, without CPUs.
type NUMANode struct {
	Number int   `json:"node"`
	CPUs   IDSet `json:"cpus"`
}

// GPU is a GPU of the job, or an instance of a partitioned GPU.
type GPU struct {
	// name in the vendor's variable, such as CUDA_VISIBLE_DEVICES
	Name   string     `json:"name"`
	Vendor gpu.Vendor `json:"vendor,omitempty"` // empty for NVIDIA
	Index  int        `json:"index"`
	UUID   string     `json:"uuid"`
	Bus    string     `json:"bus"`
	NUMA   int        `json:"numa"` // -1 if unknown
	// allowed CPUs that are near the GPU; if there are none, all allowed CPUs
	CPUs  IDSet `json:"cpus"`
	IsFar bool  `json:"far,omitzero"` // no allowed CPU is near, or the location is unknown
	// NICs are the nearest RDMA devices, named as in [Affinity.NICs].
	NICs []string `json:"nics"`
}

// SlotUnit is the kind of resource for which each rank is started.
type SlotUnit string

// Units of --ranks-per-node.
const (
	PerGPU  SlotUnit = "gpu"
	PerNUMA SlotUnit = "numa"
	PerCore SlotUnit = "core"
)

// CountSlots returns the number of units that this process may use: GPUs or their instances, NUMA
// nodes with CPUs, or physical cores.
func (n Node) CountSlots(unit SlotUnit) int {
	cores := n.allowedCores()
	switch unit {
	case PerGPU:
		return len(n.GPUs)
	case PerNUMA:
		return len(groupCores(cores, Core.numaNode))
	}
	return len(cores)
}

// CountCPUs returns the number of CPUs of the node, also of those that this process may not use.
func (n Node) CountCPUs() int { return len(cpusOfCores(n.Cores)) }

func (n Node) allowedCores() (cores []Core) {
	for _, c := range n.Cores {
		if c.CPUs = c.CPUs.intersect(n.CPUs); len(c.CPUs) > 0 {
			cores = append(cores, c)
		}
	}
	return cores
}

func (c Core) numaNode() int { return c.NUMA }

func (c Core) packageNumber() int { return c.Package }

func (c Core) compare(other Core) int {
	return cmp.Or(cmp.Compare(c.Package, other.Package), cmp.Compare(c.NUMA, other.NUMA),
		slices.Compare(c.CPUs, other.CPUs))
}

// groupCores divides sorted cores into parts for which by returns the same value.
func groupCores(cores []Core, by func(Core) int) (parts [][]Core) {
	for at, c := range cores {
		if at == 0 || by(c) != by(cores[at-1]) {
			parts = append(parts, nil)
		}
		last := &parts[len(parts)-1]
		*last = append(*last, c)
	}
	return parts
}

func cpusOfCores(cores []Core) (all IDSet) {
	for _, c := range cores {
		all = append(all, c.CPUs...)
	}
	return newIDSet(all)
}
