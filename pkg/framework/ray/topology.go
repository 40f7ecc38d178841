package ray

import (
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// topologyResources returns the resources that describe the location of a node to programs:
//
//   - nvlink_domain_<UUID of the fabric>: 1, on all nodes that are connected by NVLink. A placement
//     group that requests a fraction of it in every bundle stays within one rack.
//   - topo_rank: a number by which to sort the nodes.
//
// The names are those of NeMo RL's ray.sub, and NeMo RL reads them (github.com/NVIDIA-NeMo/RL,
// nemo_rl/distributed/virtual_cluster.py): it groups nodes by domain, sorts the nodes of a domain
// by topo_rank and the domains by their minimum, and uses as many whole segments as it needs. Only
// the order matters; every node must have a unique number. Ray does not keep resources that are 0.
func topologyResources(node framework.Node) map[string]float64 {
	resources := map[string]float64{
		"topo_rank": topoRank(launcher.TopologyBlock(launcher.EnvironmentOf(node.Environ)), node.LaunchIndex),
	}
	if node.NVLinkDomain != "" {
		resources["nvlink_domain_"+node.NVLinkDomain] = 1
	}
	return resources
}

// topoRank sorts nodes by their block, if Slurm has blocks, and then by the node's index in the
// launch. For the latter ray.sub uses the digits of the node's name, which may not be unique; an
// index is unique, follows Slurm's order of nodes, and needs no communication. Blocks whose names
// have the same digits, or none, are still distinguished by domain and sorted by index.
func topoRank(block string, rank int) float64 {
	const blockSize = 1e6 // more nodes than any launch has
	const maxBlock = 99e6 // Ray refuses a resource above 1e14
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, block)
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || number > maxBlock {
		number = 0
	}
	return blockSize*float64(number) + float64(rank+1)
}
