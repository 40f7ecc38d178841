package pmix

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// jobAttributes returns the attributes with which a job is registered at the library of a node. MPI
// libraries cannot start without the maps and the rank, local rank and node rank of each process,
// and Intel MPI also requires the universe's size; the rest is used later. A library derives from
// pmix.nodeid which ranks share a node, so this number refers to the nodes of pmix.nmap, which
// contains only nodes with ranks of the job.
func jobAttributes(job *pmi.Job, node int, dir string) []attribute {
	var hosts, byNode []string
	nodeID := make(map[int]int) // index in the node map of each node with ranks of the job
	for place, host := range job.Hosts {
		if local := job.LocalRanks(place); len(local) > 0 {
			nodeID[place] = len(hosts)
			hosts, byNode = append(hosts, host), append(byNode, formatNumbers(local))
		}
	}
	apps := 1
	if job.Apps != nil {
		apps = slices.Max(job.Apps) + 1
	}
	infos := []attribute{
		{"pmix.nmap", typeNodeMap, strings.Join(hosts, ",")}, {"pmix.pmap", typeRankMap, strings.Join(byNode, ";")},
		{"pmix.job.size", typeUint32, len(job.Nodes)}, {"pmix.univ.size", typeUint32, job.UniverseSize},
		{"pmix.max.size", typeUint32, job.UniverseSize},
		{"pmix.job.napps", typeUint32, apps}, {"pmix.num.nodes", typeUint32, len(hosts)},
		{"pmix.jobid", typeString, job.Name},
		{"pmix.spawned", typeBool, job.Parent != nil}, {"pmix.tmpdir", typeString, dir},
		{"pmix.nsdir", typeString, filepath.Join(dir, job.Name)},
	}
	if job.Parent != nil {
		infos = append(infos, attribute{"pmix.parent", typeProc, *job.Parent})
	}
	// Add the attributes of this node.
	if local := job.LocalRanks(node); len(local) > 0 {
		infos = append(infos, attribute{"pmix.local.size", typeUint32, len(local)},
			attribute{"pmix.node.size", typeUint32, len(local)},
			attribute{"pmix.lpeers", typeString, formatNumbers(local)},
			attribute{"pmix.lldr", typeRank, local[0]}, attribute{"pmix.nodeid", typeUint32, nodeID[node]})
	}
	return append(infos, rankAttributes(job, nodeID)...)
}

func rankAttributes(job *pmi.Job, nodeID map[int]int) (infos []attribute) {
	local, inApp, leader := make(map[int]int), make(map[int]int), make(map[int]int)
	for rank, node := range job.Nodes {
		app := job.CommandIndex(rank)
		if inApp[app] == 0 {
			leader[app] = rank
		}
		infos = append(infos, attribute{"pmix.pdata", typeArray, []attribute{
			{"pmix.rank", typeRank, rank}, {"pmix.appnum", typeUint32, app}, {"pmix.apprank", typeRank, inApp[app]},
			{"pmix.aldr", typeRank, leader[app]},
			{"pmix.grank", typeRank, rank}, {"pmix.lrank", typeUint16, local[node]},
			{"pmix.nrank", typeUint16, local[node]},
			{"pmix.nodeid", typeUint32, nodeID[node]}, {"pmix.hname", typeString, job.Hosts[node]},
		}})
		local[node]++
		inApp[app]++
	}
	return infos
}

func formatNumbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}
