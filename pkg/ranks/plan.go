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
	rankCount  int   // total number
	nodeOfRank []int // node of each rank; nil: the ranks of one node follow those of the one before
	firstRank  int   // number of the first rank
}

// PlanSpawned returns the plan of ranks that are spawned later. nodes has the node index, less than
// count, of each rank. The ranks are numbered from first on.
func PlanSpawned(nodes []int, count, first int) Plan {
	p := Plan{perNode: make([]int, count), rankCount: len(nodes), nodeOfRank: nodes, firstRank: first}
	for _, node := range nodes {
		p.perNode[node]++
	}
	return p
}

// MakePlan makes the plan that a wish requests. slots has the number of ranks of each node or, if
// the wish sets a total, the maximum number. The error describes what is missing.
func MakePlan(w LayoutRequest, slots []int) (Plan, error) {
	if w.Total == 0 {
		return newPlan(slices.Clone(slots)), nil
	}
	// Fill the nodes in their order.
	perNode, left := make([]int, len(slots)), w.Total
	for node, free := range slots {
		perNode[node] = min(free, left)
		left -= perNode[node]
	}
	switch {
	case left == 0:
	case w.PerNode != "":
		return Plan{}, fmt.Errorf("cannot run %d ranks: --ranks-per-node=%s allows only %d on %d %s; use more nodes, or more ranks per node",
			w.Total, w.PerNode, w.Total-left, len(slots), textutil.PluralForm(len(slots), "node"))
	case !w.Oversubscribe:
		return Plan{}, fmt.Errorf("cannot run %d ranks: the %d %s have %d cores or GPUs for the job; give --oversubscribe to let ranks share them, or use more nodes",
			w.Total, len(slots), textutil.PluralForm(len(slots), "node"), w.Total-left)
	}
	// Oversubscribe: distribute the remaining ranks evenly.
	for node := 0; left > 0; node, left = (node+1)%len(slots), left-1 {
		perNode[node]++
	}
	return newPlan(perNode), nil
}

func newPlan(perNode []int) Plan {
	return Plan{perNode: perNode, rankCount: sumInts(perNode)}
}

// allRanks returns all ranks, by number.
func (p Plan) allRanks() []Rank {
	all := make([]Rank, 0, p.rankCount)
	if p.nodeOfRank != nil {
		local := make([]int, len(p.perNode))
		for rank, node := range p.nodeOfRank {
			all = append(all, Rank{p.firstRank + rank, node, local[node]})
			local[node]++
		}
		return all
	}
	for node, n := range p.perNode {
		for local := range n {
			all = append(all, Rank{Rank: len(all), Node: node, Local: local})
		}
	}
	return all
}

// rankNumber returns the number of the rank with this local number on a node, without listing all
// ranks.
func (p Plan) rankNumber(node, local int) (number int) {
	if p.nodeOfRank != nil {
		for rank, on := range p.nodeOfRank {
			if on != node {
				continue
			}
			if local--; local < 0 {
				return p.firstRank + rank
			}
		}
	}
	return sumInts(p.perNode[:node]) + local
}

func sumInts(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// PlanFromRecord returns the plan in a record of the head.
func PlanFromRecord(r *record.Placement) Plan { return newPlan(r.PerNode) }

// Record returns the record with which the head publishes the plan.
func (p Plan) Record() *record.Placement {
	return &record.Placement{PerNode: p.perNode}
}

// RankCount returns the number of ranks.
func (p Plan) RankCount() int { return p.rankCount }

// NodeCount returns the number of nodes, including those without ranks.
func (p Plan) NodeCount() int { return len(p.perNode) }

// RanksOn returns the ranks of a node, by their local numbers.
func (p Plan) RanksOn(node int) []Rank {
	on := make([]Rank, 0, p.perNode[node])
	for local := range p.perNode[node] {
		on = append(on, Rank{p.rankNumber(node, local), node, local})
	}
	return on
}

// RendezvousLayout returns the plan in the form of the rendezvous. hosts has the name of each node.
func (p Plan) RendezvousLayout(hosts []string) rendezvous.Layout {
	places := make([]rendezvous.NodeRanks, len(p.perNode))
	for node := range places {
		places[node] = p.emptyNodeRanks(node, hosts)
	}
	for _, rank := range p.allRanks() {
		places[rank.Node].Ranks = append(places[rank.Node].Ranks, rank.Rank)
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
	place := rendezvous.NodeRanks{Node: node, Host: fmt.Sprintf("node %d", node), Ranks: make([]int, 0, p.perNode[node])}
	if node < len(hosts) {
		place.Host = hosts[node]
	}
	return place
}

// NodesByRank returns the node index of each rank.
func (p Plan) NodesByRank() []int {
	nodes := make([]int, p.rankCount)
	for _, rank := range p.allRanks() {
		nodes[rank.Rank-p.firstRank] = rank.Node
	}
	return nodes
}

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
