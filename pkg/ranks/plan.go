package ranks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Rank identifies a rank and its node.
type Rank struct {
	Rank  int // number in the run
	Node  int // node index, by position in the team
	Local int // number among the ranks of the node
}

// Plan assigns the ranks of a world to nodes.
type Plan struct {
	order   Order // numbering; used only if nodes is nil
	perNode []int // number of ranks of each node
	ranks   int   // total number
	nodes   []int // node of each rank; nil if the order determines it
	first   int   // number of the first rank
}

// Spread returns the plan of ranks that are spawned later. nodes has the node index, less than
// count, of each rank. The ranks are numbered from first on.
func Spread(nodes []int, count, first int) Plan {
	p := Plan{perNode: make([]int, count), ranks: len(nodes), nodes: nodes, first: first}
	for _, node := range nodes {
		p.perNode[node]++
	}
	return p
}

// MakePlan makes the plan that a wish requests. slots has the number of ranks of each node or, if
// the wish sets a total, the maximum number. The error describes what is missing.
func MakePlan(w Wish, slots []int) (Plan, error) {
	if w.Total == 0 {
		return planned(w.Order, slices.Clone(slots)), nil
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
		return Plan{}, fmt.Errorf("cannot run %d ranks: --ranks-per-node=%s makes %d of them on %d %s; give more nodes, or more ranks a node",
			w.Total, w.PerNode, w.Total-left, len(slots), prose.Noun(len(slots), "node"))
	case !w.Oversubscribe:
		return Plan{}, fmt.Errorf("cannot run %d ranks: the %d %s have %d cores or GPUs for the job; give --oversubscribe to let ranks share, or more nodes",
			w.Total, len(slots), prose.Noun(len(slots), "node"), w.Total-left)
	}
	// Oversubscribe: distribute the remaining ranks evenly.
	for node := 0; left > 0; node, left = (node+1)%len(slots), left-1 {
		perNode[node]++
	}
	return planned(w.Order, perNode), nil
}

func planned(order Order, perNode []int) Plan {
	return Plan{order: order, perNode: perNode, ranks: total(perNode)}
}

// all returns all ranks, by number.
func (p Plan) all() []Rank {
	all := make([]Rank, 0, p.ranks)
	if p.nodes != nil {
		local := make([]int, len(p.perNode))
		for rank, node := range p.nodes {
			all = append(all, Rank{p.first + rank, node, local[node]})
			local[node]++
		}
		return all
	}
	for node, n := range p.perNode {
		for local := range n {
			all = append(all, Rank{Node: node, Local: local})
		}
	}
	if p.order == RoundRobin {
		slices.SortStableFunc(all, func(a, b Rank) int { return a.Local - b.Local })
	}
	for rank := range all {
		all[rank].Rank = rank
	}
	return all
}

// number returns the number of the rank with this local number on a node, without listing all
// ranks.
func (p Plan) number(node, local int) (number int) {
	if p.nodes != nil {
		for rank, on := range p.nodes {
			if on != node {
				continue
			}
			if local--; local < 0 {
				return p.first + rank
			}
		}
	}
	if p.order != RoundRobin {
		return total(p.perNode[:node]) + local
	}
	// Round-robin: count the ranks with smaller local numbers, and those with the same local number on
	// preceding nodes.
	for other, n := range p.perNode {
		number += min(n, local)
		if other < node && n > local {
			number++
		}
	}
	return number
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// PlanOf returns the plan in a record of the head.
func PlanOf(r *signal.RanksRecord) Plan { return planned(Order(r.Order), r.PerNode) }

// Record returns the record with which the head publishes the plan.
func (p Plan) Record() *signal.RanksRecord {
	return &signal.RanksRecord{Order: string(p.order), PerNode: p.perNode}
}

// Ranks returns the number of ranks.
func (p Plan) Ranks() int { return p.ranks }

// Nodes returns the number of nodes, including those without ranks.
func (p Plan) Nodes() int { return len(p.perNode) }

// On returns the ranks of a node, by their local numbers.
func (p Plan) On(node int) []Rank {
	on := make([]Rank, 0, p.perNode[node])
	for local := range p.perNode[node] {
		on = append(on, Rank{p.number(node, local), node, local})
	}
	return on
}

// World returns the plan in the form of the rendezvous. hosts has the name of each node.
func (p Plan) World(hosts []string) meeting.World {
	places := make([]meeting.Place, len(p.perNode))
	for node := range places {
		places[node] = p.empty(node, hosts)
	}
	for _, rank := range p.all() {
		places[rank.Node].Ranks = append(places[rank.Node].Ranks, rank.Rank)
	}
	return meeting.NewWorld(places)
}

// Place returns one node's part of [Plan.World].
func (p Plan) Place(node int, hosts []string) meeting.Place {
	place := p.empty(node, hosts)
	for _, rank := range p.On(node) {
		place.Ranks = append(place.Ranks, rank.Rank)
	}
	return place
}

// empty returns the part of a node, without its ranks.
func (p Plan) empty(node int, hosts []string) meeting.Place {
	place := meeting.Place{Node: node, Host: fmt.Sprintf("node %d", node), Ranks: make([]int, 0, p.perNode[node])}
	if node < len(hosts) {
		place.Host = hosts[node]
	}
	return place
}

// NodeOf returns the node index of each rank.
func (p Plan) NodeOf() []int {
	nodes := make([]int, p.ranks)
	for _, rank := range p.all() {
		nodes[rank.Rank-p.first] = rank.Node
	}
	return nodes
}

// Used returns the hosts that have ranks. hosts has the name of each node.
func (p Plan) Used(hosts []string) (used []string) {
	for node, n := range p.perNode {
		if n > 0 {
			used = append(used, hosts[node])
		}
	}
	return used
}

// Local returns the number of ranks of a node.
func (p Plan) Local(node int) int { return p.perNode[node] }

// Uneven describes how many ranks each node has, if the nodes have different numbers of ranks.
// Otherwise it returns an empty string. hosts formats a list of nodes.
func (p Plan) Uneven(hosts func(nodes []int) string) string {
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
		parts = append(parts, fmt.Sprintf("%s: %d %s", hosts(by[n]), n, prose.Noun(n, "rank")))
	}
	return "the nodes have not as many ranks each: " + strings.Join(parts, "; ")
}

// Failed returns the exits with a code other than 0.
func Failed(exits []signal.RankExit) []signal.RankExit {
	return slices.DeleteFunc(slices.Clone(exits), func(e signal.RankExit) bool { return e.Code == 0 })
}
