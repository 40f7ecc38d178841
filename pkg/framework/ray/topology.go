package ray

import (
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
)

// topology are the resources that tell programs where a node is:
//
//   - nvlink_domain_<UUID of the fabric>: 1, on all nodes that reach each other over
//     NVLink. A placement group asks for a little of it in every bundle, and so
//     stays within one rack.
//   - topo_rank: a number by which to sort the nodes.
//
// The names are those of NeMo RL's ray.sub, and it is NeMo RL that reads them
// (github.com/NVIDIA-NeMo/RL, nemo_rl/distributed/virtual_cluster.py): it groups
// nodes by domain, sorts a domain's nodes by topo_rank and the domains by their
// least, and takes nodes for as many whole segments as it needs. Only the order
// counts; a number must be there, and no other node's. Ray keeps none that is 0.
func topology(node framework.Node) map[string]float64 {
	resources := map[string]float64{
		"topo_rank": topoRank(roles.Block(roles.EnvironmentOf(node.Environ)), node.LaunchRank),
	}
	if node.NVLinkDomain != "" {
		resources["nvlink_domain_"+node.NVLinkDomain] = 1
	}
	return resources
}

// topoRank sorts nodes by their block, where Slurm knows blocks, and then by the
// rank in the launch. ray.sub takes the digits of the node's name for the latter,
// which may be those of another; a rank is nobody else's, follows Slurm's own
// order of nodes, and no other node need be asked. So blocks whose names have the
// same digits, or none, are still told apart by domain and put in order by rank.
func topoRank(block string, rank int) float64 {
	const blockSize = 1e6 // more nodes than there are in any launch
	return blockSize*blockNumber(block) + float64(rank+1)
}

// blockNumber is the number that the digits in a name make up; 0 where there are
// none, or too many for Ray, which refuses to start with a resource above 1e14.
func blockNumber(name string) float64 {
	const most = 99e6
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, name)
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || number > most {
		return 0
	}
	return float64(number)
}
