package rendezvous

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Group is a set of ranks that enter a fence together.
type Group struct {
	Ranks string // ranges such as "0-63,70"; empty: all ranks that the run began with
	Local []int  // the members on this node
}

// fenceName returns the name under which all nodes know the group's fence.
func (g Group) fenceName(name string) string {
	if g.Ranks == "" {
		return name
	}
	return name + " of " + g.Ranks
}

const maxRank = 1<<31 - 1

type groupMembers struct {
	ranks        []int // sorted; nil: all ranks below [groupMembers.initialCount]
	initialCount int
	nodeCount    int // number of nodes that have members
}

func (m *groupMembers) hasRank(rank int) bool {
	if m.ranks == nil {
		return rank < m.initialCount
	}
	_, is := slices.BinarySearch(m.ranks, rank)
	return is
}

func (m *groupMembers) filterRanks(ranks []int) (own []int) {
	for _, rank := range ranks {
		if m.hasRank(rank) {
			own = append(own, rank)
		}
	}
	return own
}

func (w *Layout) resolveGroup(ranks string) (*groupMembers, error) {
	if ranks == "" {
		return &groupMembers{initialCount: w.initialRanks, nodeCount: w.initialNodes}, nil
	}
	set, err := textutil.ParseRanges(ranks, maxRank)
	if err != nil {
		return nil, fmt.Errorf("cannot fence: %v", err)
	}
	on := make(map[int]bool)
	for _, rank := range set {
		place := w.nodeOfRank(rank)
		if place == nil {
			return nil, fmt.Errorf("cannot fence: there is no rank %d", rank)
		}
		on[place.Node] = true
	}
	return &groupMembers{ranks: set, nodeCount: len(on)}, nil
}

// addRanks adds ranks that did not exist when the run began. Each place names a node and its new
// ranks.
func (w *Layout) addRanks(places []NodeRanks) {
	for _, more := range places {
		place := w.nodeAt(more.Node)
		if place == nil {
			continue
		}
		place.Ranks = append(place.Ranks, more.Ranks...)
		for _, rank := range more.Ranks {
			if rank >= len(w.nodeByRank) {
				w.nodeByRank = append(w.nodeByRank, make([]*NodeRanks, rank+1-len(w.nodeByRank))...)
			}
			w.nodeByRank[rank] = place
		}
	}
}
