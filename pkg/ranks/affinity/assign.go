package affinity

import (
	"cmp"
	"fmt"
	"slices"
)

// AssignRanks divides the node among its ranks. It returns the binding of each rank by local
// number.
//
// If the number of GPUs is a multiple of the number of ranks, each rank gets an equal part of the
// GPUs; otherwise each gets one GPU, which several ranks share if there are more ranks than GPUs.
// Ranks with GPUs near the same CPUs share these CPUs evenly, in whole cores. Without GPUs, all
// ranks share all CPUs evenly. Memory and network cards follow. Note is set if CPUs could not be
// bound as k requests.
func (n Node) AssignRanks(ranks int, k ResourceKinds) []Affinity {
	if ranks <= 0 {
		return nil
	}
	gpus := n.divideGPUs(ranks)
	near := make([]IDSet, ranks)
	for i := range near {
		near[i] = n.cpusNear(gpus[i])
	}
	shares, note := divideCores(n.allowedCores(), near)
	places := make([]Affinity, ranks)
	for i := range places {
		places[i] = n.affinityFor(gpus[i], shares[i], k)
		if k.CPU {
			places[i].Note = note
		}
	}
	return places
}

// BindGPUs returns the binding of a process to GPUs of the node, by their index in GPUs, and to the
// CPUs, memory and network cards near them. The CPUs may be shared with other processes.
func (n Node) BindGPUs(indices []int, k ResourceKinds) Affinity {
	var gpus []GPU
	for _, index := range indices {
		if index < len(n.GPUs) {
			gpus = append(gpus, n.GPUs[index])
		}
	}
	near := n.cpusNear(gpus)
	cores := slices.DeleteFunc(n.allowedCores(), func(c Core) bool { return len(c.CPUs.intersect(near)) == 0 })
	return n.affinityFor(gpus, cores, k)
}

// affinityFor returns the binding of a rank with these GPUs and cores. cores is empty if the rank
// has no CPUs of its own.
func (n Node) affinityFor(gpus []GPU, cores []Core, k ResourceKinds) (p Affinity) {
	if k.CPU {
		p.CPUs = cpusOfCores(cores)
	}
	if k.Memory {
		p.Mems = n.memoryNodesOf(cores)
	}
	if k.Network {
		p.NICs = n.nearestPorts(gpus, cores)
	}
	if k.GPU {
		for _, g := range gpus {
			p.GPUs, p.Vendor = append(p.GPUs, g.Name), g.Vendor
		}
	}
	return p
}

func (n Node) divideGPUs(ranks int) [][]GPU {
	gpus := make([][]GPU, ranks)
	if len(n.GPUs) == 0 {
		return gpus
	}
	each := 1
	if len(n.GPUs)%ranks == 0 {
		each = len(n.GPUs) / ranks
	}
	for i := range gpus {
		first := i * each % len(n.GPUs)
		gpus[i] = n.GPUs[first : first+each]
	}
	return gpus
}

func (n Node) cpusNear(gpus []GPU) (cpus IDSet) {
	for _, g := range gpus {
		if !g.IsFar {
			cpus = cpus.union(g.CPUs)
		}
	}
	if len(cpus) == 0 {
		return n.CPUs
	}
	return cpus
}

// Formats of [Affinity.Note] for CPUs that could not be bound as requested.
const (
	noteNoCores = "ranks are not bound to CPUs: this node has %d ranks, but only %d usable cores"
	noteNotNear = "CPUs may be far from the rank's GPU: some GPUs have fewer cores nearby than ranks"
)

// divideCores divides the cores among the ranks, so that each rank has whole cores of its own, if
// possible among the CPUs in near. If there are fewer cores than ranks, no rank gets any. note
// describes what was not possible.
func divideCores(cores []Core, near []IDSet) (shares [][]Core, note string) {
	if len(cores) < len(near) {
		return make([][]Core, len(near)), fmt.Sprintf(noteNoCores, len(near), len(cores))
	}
	if shares = divideNearCores(cores, near); shares != nil {
		return shares, ""
	}
	return splitCores(cores, len(near)), noteNotNear
}

// divideNearCores gives each rank a part of the cores near it. It returns nil if there are too few.
// Ranks with fewer near CPUs choose first, because the others have more alternatives.
func divideNearCores(cores []Core, near []IDSet) [][]Core {
	shares := make([][]Core, len(near))
	for _, group := range groupByCPUs(near) {
		// Divide the near cores that are left among the group.
		wanted := near[group[0]]
		var mine, rest []Core
		for _, c := range cores {
			if len(c.CPUs.intersect(wanted)) > 0 {
				mine = append(mine, c)
			} else {
				rest = append(rest, c)
			}
		}
		if len(mine) < len(group) {
			return nil
		}
		for i, part := range splitCores(mine, len(group)) {
			shares[group[i]] = part
		}
		cores = rest
	}
	return shares
}

// groupByCPUs groups the ranks with the same near CPUs. Groups with fewer CPUs come first.
func groupByCPUs(near []IDSet) (groups [][]int) {
	for i, wanted := range near {
		at := slices.IndexFunc(groups, func(group []int) bool { return slices.Equal(near[group[0]], wanted) })
		if at < 0 {
			groups, at = append(groups, nil), len(groups)
		}
		groups[at] = append(groups[at], i)
	}
	slices.SortStableFunc(groups, func(a, b []int) int { return cmp.Compare(len(near[a[0]]), len(near[b[0]])) })
	return groups
}

// splitCores divides sorted cores among ranks. If the number of packages or of NUMA nodes equals
// the number of ranks, each rank gets one. Otherwise it divides the cores as evenly as possible;
// equal parts then coincide with packages and NUMA nodes. There must be at least as many cores as
// ranks.
func splitCores(cores []Core, ranks int) [][]Core {
	for _, by := range []func(Core) int{Core.packageNumber, Core.numaNode} {
		if parts := groupCores(cores, by); len(parts) == ranks {
			return parts
		}
	}
	parts := make([][]Core, ranks)
	for i := range parts {
		parts[i] = cores[i*len(cores)/ranks : (i+1)*len(cores)/ranks]
	}
	return parts
}

// memoryNodesOf returns the memory nodes of the cores. It returns nil if these are all memory nodes,
// because a policy that forbids nothing would only keep the kernel from moving pages to the nodes
// that use them.
func (n Node) memoryNodesOf(cores []Core) (mems IDSet) {
	for _, c := range cores {
		mems = mems.union(n.Mems.intersect(IDSet{c.NUMA}))
	}
	if slices.Equal(mems, n.Mems) {
		return nil
	}
	return mems
}

// nearestPorts returns the ports that are nearest to the GPUs or, without GPUs, the ports on the
// NUMA nodes of the cores. It returns nil if these are all ports, or if no port has a link; UCX and
// NCCL then select among all ports.
func (n Node) nearestPorts(gpus []GPU, cores []Core) (nics []string) {
	var all []string
	for _, card := range n.NICs {
		here := slices.ContainsFunc(cores, func(c Core) bool { return c.NUMA == card.NUMA || card.NUMA < 0 })
		for _, port := range activePorts(card) {
			all = append(all, port)
			near := slices.ContainsFunc(gpus, func(g GPU) bool { return slices.Contains(g.NICs, port) })
			if near || len(gpus) == 0 && here {
				nics = append(nics, port)
			}
		}
	}
	if len(nics) == len(all) {
		return nil
	}
	return nics
}
