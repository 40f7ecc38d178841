package rendezvous

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// NodeRanks is a node of the team with its ranks. A node has no ranks if the run has a driver
// instead.
type NodeRanks struct {
	Node  int // node index in the team
	Host  string
	Ranks []int
}

// Layout is the assignment of ranks to the nodes of the team.
type Layout struct {
	nodes        []NodeRanks
	initialNodes int          // number of nodes with initial ranks
	initialRanks int          // number of initial ranks: those that the run began with
	nodeByRank   []*NodeRanks // nil for numbers without a rank
}

// NewLayout returns the world of the given nodes, which must be sorted by node index. Ranks are
// numbered from 0.
func NewLayout(places []NodeRanks) Layout {
	w := Layout{nodes: make([]NodeRanks, len(places))}
	for i, place := range places {
		w.nodes[i] = NodeRanks{Node: place.Node, Host: place.Host}
		if len(place.Ranks) > 0 {
			w.initialNodes++
		}
	}
	w.addRanks(places)
	w.initialRanks = len(w.nodeByRank)
	return w
}

// nodeAt returns the place of a node; nil if there is no such node.
func (w Layout) nodeAt(node int) *NodeRanks {
	if node < 0 || node >= len(w.nodes) {
		return nil
	}
	return &w.nodes[node]
}

// nodeOfRank returns the place of a rank's node; nil if there is no such rank.
func (w Layout) nodeOfRank(rank int) *NodeRanks {
	if rank < 0 || rank >= len(w.nodeByRank) {
		return nil
	}
	return w.nodeByRank[rank]
}

// ownerName returns the owner's name of a rank, or of the node's other programs if rank is -1.
func (p *NodeRanks) ownerName(rank int) string {
	if rank >= 0 {
		return strconv.Itoa(rank)
	}
	return "n" + strconv.Itoa(p.Node)
}

// describeRank describes a rank, or another program of the node if rank is -1, for messages.
func (p *NodeRanks) describeRank(rank int) string {
	if rank >= 0 {
		return fmt.Sprintf("rank %d on %s", rank, p.Host)
	}
	return "a program on " + p.Host
}

// nodeOfOwner returns the place of an owner's node; nil if there is no such owner.
func (w Layout) nodeOfOwner(owner string) *NodeRanks {
	if text, node := strings.CutPrefix(owner, "n"); node {
		if number, err := strconv.Atoi(text); err == nil {
			return w.nodeAt(number)
		}
		return nil
	}
	rank, err := strconv.Atoi(owner)
	if err != nil || strconv.Itoa(rank) != owner {
		return nil
	}
	return w.nodeOfRank(rank)
}

func (w Layout) describeOwner(owner string) string {
	place := w.nodeOfOwner(owner)
	if place == nil {
		return owner
	}
	return place.describeRank(ownerRank(owner))
}

func (w Layout) describeRanks(by map[int][]int) string {
	var parts []string
	for _, place := range w.nodes {
		if ranks := by[place.Node]; len(ranks) > 0 {
			parts = append(parts, textutil.FormatIndices("rank", ranks)+" on "+place.Host)
		}
	}
	return textutil.JoinLimited(parts, 16, ", ")
}
