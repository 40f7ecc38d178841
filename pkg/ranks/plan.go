package ranks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Rank identifies a rank and its node.
type Rank struct {
	Rank  int // number in the run
	Node  int // node index, by position in the team
	Local int // number among the ranks of the node
}

// Plan assigns the ranks of a world to nodes.
type Plan struct {
	perNode    []int // number of ranks of each node
	nodeOfRank []int // node of each rank
	firstRank  int   // number of the first rank
}

// PlanSpawned returns the plan of ranks that are spawned later. nodes has the node index, less than
// count, of each rank. The ranks are numbered from first on.
func PlanSpawned(nodes []int, count, first int) Plan {
	p := Plan{perNode: make([]int, count), nodeOfRank: nodes, firstRank: first}
	for _, node := range nodes {
		p.perNode[node]++
	}
	return p
}

// CheckTotal returns an error that describes what is missing if the nodes can have fewer ranks than the
// requested total. slots has the number of ranks that each node can have.
func (w LayoutRequest) CheckTotal(slots []int) error {
	room := 0
	for _, free := range slots {
		room += free
	}
	nodes := fmt.Sprintf("%d %s", len(slots), textutil.PluralForm(len(slots), "node"))
	switch {
	case w.Total <= room:
		return nil
	case w.PerNode != "":
		return fmt.Errorf("cannot run %d ranks: --ranks-per-node=%s allows only %d on %s; use more "+
			"nodes, or more ranks per node", w.Total, w.PerNode, room, nodes)
	case !w.Oversubscribe:
		return fmt.Errorf("cannot run %d ranks: the %s have %d cores or GPUs for the job; use more "+
			"nodes, let the launcher grant more, or give --oversubscribe to let ranks share them", w.Total, nodes, room)
	}
	return nil
}

// NewPlan returns the plan of an initial world with these numbers of ranks on its nodes. The ranks of each
// node follow those of the one before.
func NewPlan(perNode []int) Plan {
	p := Plan{perNode: perNode}
	for node, count := range perNode {
		p.nodeOfRank = append(p.nodeOfRank, slices.Repeat([]int{node}, count)...)
	}
	return p
}

// RankCount returns the number of ranks.
func (p Plan) RankCount() int { return len(p.nodeOfRank) }

// NodeCount returns the number of nodes, including those without ranks.
func (p Plan) NodeCount() int { return len(p.perNode) }

// RanksOn returns the ranks of a node, by their local numbers.
func (p Plan) RanksOn(node int) []Rank {
	on := make([]Rank, 0, p.perNode[node])
	for rank, other := range p.nodeOfRank {
		if other == node {
			on = append(on, Rank{p.firstRank + rank, node, len(on)})
		}
	}
	return on
}

// RendezvousLayout returns the plan in the form of the rendezvous. hosts has the name of each node.
func (p Plan) RendezvousLayout(hosts []string) rendezvous.Layout {
	places := make([]rendezvous.NodeRanks, len(p.perNode))
	for node := range places {
		places[node] = p.emptyNodeRanks(node, hosts)
	}
	for rank, node := range p.nodeOfRank {
		places[node].Ranks = append(places[node].Ranks, p.firstRank+rank)
	}
	return rendezvous.NewLayout(places)
}

// NodeRanks returns one node's part of [Plan.RendezvousLayout].
func (p Plan) NodeRanks(node int, hosts []string) rendezvous.NodeRanks {
	place := p.emptyNodeRanks(node, hosts)
	for _, rank := range p.RanksOn(node) {
		place.Ranks = append(place.Ranks, rank.Rank)
	}
	return place
}

// emptyNodeRanks returns the part of a node, without its ranks.
func (p Plan) emptyNodeRanks(node int, hosts []string) rendezvous.NodeRanks {
	place := rendezvous.NodeRanks{Node: node, Host: fmt.Sprintf("node %d", node),
		Ranks: make([]int, 0, p.perNode[node])}
	if node < len(hosts) {
		place.Host = hosts[node]
	}
	return place
}

// NodesByRank returns the node index of each rank.
func (p Plan) NodesByRank() []int { return p.nodeOfRank }

// UsedHosts returns the hosts that have ranks. hosts has the name of each node.
func (p Plan) UsedHosts(hosts []string) (used []string) {
	for node, n := range p.perNode {
		if n > 0 {
			used = append(used, hosts[node])
		}
	}
	return used
}

// LocalCount returns the number of ranks of a node.
func (p Plan) LocalCount(node int) int { return p.perNode[node] }

// DescribeUneven describes how many ranks each node has, if the nodes have different numbers of
// ranks. Otherwise it returns an empty string. hosts formats a list of nodes.
func (p Plan) DescribeUneven(hosts func(nodes []int) string) string {
	// Group the nodes by their numbers of ranks.
	by := make(map[int][]int)
	var counts []int
	for node, n := range p.perNode {
		if by[n] == nil {
			counts = append(counts, n)
		}
		by[n] = append(by[n], node)
	}
	if len(counts) < 2 {
		return ""
	}
	slices.Sort(counts)
	var parts []string
	for _, n := range slices.Backward(counts) {
		parts = append(parts, fmt.Sprintf("%s: %d %s", hosts(by[n]), n, textutil.PluralForm(n, "rank")))
	}
	return "nodes have different numbers of ranks: " + strings.Join(parts, "; ")
}

// FailedExits returns the exits with a code other than 0.
func FailedExits(exits []record.RankExit) []record.RankExit {
	return slices.DeleteFunc(slices.Clone(exits), func(e record.RankExit) bool { return e.Code == 0 })
}
