package pmix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// valueOf returns the value of a key, or nil if it is missing.
func valueOf(infos []attribute, key string) any {
	at := slices.IndexFunc(infos, func(i attribute) bool { return i.key == key })
	if at < 0 {
		return nil
	}
	return infos[at].value
}

// TestNodeIDs verifies, for every placement of a spawn, that a library that counts by the node map
// finds each rank's node, its host and its local peers.
func TestNodeIDs(t *testing.T) {
	for nodes := 2; nodes <= 4; nodes++ {
		for ranks := 1; ranks <= 3; ranks++ {
			placement := make([]int, ranks)
			for { // each way to assign nodes to the ranks
				t.Run(fmt.Sprint(nodes, " nodes, ranks on ", placement),
					func(t *testing.T) { checkNodeIDs(t, nodes, placement) })
				at := 0
				for ; at < ranks && placement[at] == nodes-1; at++ {
					placement[at] = 0
				}
				if at == ranks {
					break
				}
				placement[at]++
			}
		}
	}
}

func checkNodeIDs(t *testing.T, nodes int, placement []int) {
	job := &pmi.Job{Name: "world.1", Nodes: slices.Clone(placement)}
	for node := range nodes {
		job.Hosts = append(job.Hosts, "n"+strconv.Itoa(node))
	}
	for node := range nodes {
		infos := jobAttributes(job, node, "/tmp")
		hosts := strings.Split(valueOf(infos, "pmix.nmap").(string), ",")
		peers := strings.Split(valueOf(infos, "pmix.pmap").(string), ";")
		switch id := valueOf(infos, "pmix.nodeid"); {
		case !slices.Contains(placement, node):
			if id != nil || valueOf(infos, "pmix.lpeers") != nil {
				t.Errorf("node %d has no ranks, and is told to be node %v", node, id)
			}
		case hosts[id.(int)] != job.Hosts[node] || peers[id.(int)] != valueOf(infos, "pmix.lpeers"):
			t.Errorf("node %d is told to be %v of %q and %q, with peers %v", node, id, hosts, peers,
				valueOf(infos, "pmix.lpeers"))
		}
		for _, i := range infos {
			if i.key != "pmix.pdata" {
				continue
			}
			of := i.value.([]attribute)
			id, rank := valueOf(of, "pmix.nodeid").(int), valueOf(of, "pmix.rank").(int)
			if hosts[id] != valueOf(of, "pmix.hname") ||
				!slices.Contains(strings.Split(peers[id], ","), strconv.Itoa(rank)) {
				t.Errorf("rank %d is told to be on node %d of %q and %q", rank, id, hosts, peers)
			}
		}
	}
}
