package binding

import (
	"cmp"
	"fmt"
	"slices"
)

// Assign shares the node among its ranks: the place of each, in their order. Every rank gets a GPU where there are
// GPUs, or several where the ranks divide them, and the same as others where there are more ranks. The CPUs near its
// GPUs are shared evenly among the ranks whose GPUs are near the same, by whole cores; without GPUs all CPUs are. Memory
// and network cards follow. What is not bound, and would be by kinds, has a word in the place's Note.
func (n Node) Assign(ranks int, k Kinds) []Place {
	if ranks <= 0 {
		return nil
	}
	gpus := n.shareGPUs(ranks)
	near := make([]Set, ranks)
	for i := range near {
		near[i] = n.near(gpus[i])
	}
	shares, note := share(n.allowed(), near)
	places := make([]Place, ranks)
	for i := range places {
		places[i] = n.place(gpus[i], shares[i], k)
		if k.CPU {
			places[i].Note = note
		}
	}
	return places
}

// place is that of a rank with these GPUs and cores; no cores: it has no CPUs of its own.
func (n Node) place(gpus []GPU, cores []Core, k Kinds) (p Place) {
	if k.CPU {
		p.CPUs = cpusOf(cores)
	}
	if k.Memory {
		p.Mems = n.mems(cores)
	}
	if k.Network {
		p.NICs = n.nics(gpus, cores)
	}
	if k.GPU {
		for _, g := range gpus {
			p.GPUs, p.Vendor = append(p.GPUs, g.Name), g.Vendor
		}
	}
	return p
}

// shareGPUs tells which GPUs each rank has.
func (n Node) shareGPUs(ranks int) [][]GPU {
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

// near are the CPUs near some GPUs; all that are allowed where there are no GPUs, or nobody knows where they are.
func (n Node) near(gpus []GPU) (cpus Set) {
	for _, g := range gpus {
		if !g.Far {
			cpus = cpus.or(g.CPUs)
		}
	}
	if len(cpus) == 0 {
		return n.CPUs
	}
	return cpus
}

// The words for what CPU binding could not do.
const (
	noteNoCores = "no CPUs of its own: this node has %d ranks, and %d cores that they may use"
	noteNotNear = "CPUs that may be far from its GPU: there are fewer cores near some GPUs than ranks that use these"
)

// share gives each rank whole cores of its own, near where it wants to be. No rank has any where there are fewer cores
// than ranks.
func share(cores []Core, near []Set) (shares [][]Core, note string) {
	if len(cores) < len(near) {
		return make([][]Core, len(near)), fmt.Sprintf(noteNoCores, len(near), len(cores))
	}
	if shares = shareNear(cores, near); shares != nil {
		return shares, ""
	}
	return split(cores, len(near)), noteNotNear
}

// shareNear gives each rank a part of what is near it; nil where there is too little for one. Those that are near the
// least choose first: the others have more to choose from.
func shareNear(cores []Core, near []Set) [][]Core {
	shares := make([][]Core, len(near))
	for _, group := range alike(near) {
		wanted := near[group[0]]
		var mine, rest []Core
		for _, c := range cores {
			if len(c.CPUs.and(wanted)) > 0 {
				mine = append(mine, c)
			} else {
				rest = append(rest, c)
			}
		}
		if len(mine) < len(group) {
			return nil
		}
		for i, part := range split(mine, len(group)) {
			shares[group[i]] = part
		}
		cores = rest
	}
	return shares
}

// alike are the ranks in groups that want the same, the ones with the smallest wish first.
func alike(near []Set) (groups [][]int) {
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

// split parts sorted cores among at most as many ranks: a package each, a NUMA node each, or as evenly as whole cores
// can be, where shares that are alike fall on packages and NUMA nodes by themselves.
func split(cores []Core, ranks int) [][]Core {
	for _, by := range []func(Core) int{Core.pack, Core.numa} {
		if parts := chunks(cores, by); len(parts) == ranks {
			return parts
		}
	}
	parts := make([][]Core, ranks)
	for i := range parts {
		parts[i] = cores[i*len(cores)/ranks : (i+1)*len(cores)/ranks]
	}
	return parts
}

// mems are the memory nodes of some cores; none where that is all there is: a policy that forbids nothing would only
// keep the kernel from moving pages to where they are used.
func (n Node) mems(cores []Core) (mems Set) {
	var all Set
	for _, node := range n.NUMA {
		if !node.Memory || len(node.CPUs) == 0 || !n.Mems.has(node.Node) {
			continue
		}
		all = append(all, node.Node)
		if slices.ContainsFunc(cores, func(c Core) bool { return c.NUMA == node.Node }) {
			mems = append(mems, node.Node)
		}
	}
	if slices.Equal(mems, all) {
		return nil
	}
	return mems
}

// nics are the ports nearest to the GPUs or, without these, of the cores' NUMA nodes; none where that is all there is,
// or where none has a link: then who uses them chooses among all.
func (n Node) nics(gpus []GPU, cores []Core) (nics []string) {
	var all []string
	for _, card := range n.NICs {
		here := slices.ContainsFunc(cores, func(c Core) bool { return c.NUMA == card.NUMA || card.NUMA < 0 })
		for _, port := range ports(card) {
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
