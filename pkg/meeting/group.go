package meeting

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Group is a set of ranks that enter a fence together.
type Group struct {
	Ranks string // ranges such as "0-63,70"; empty: all ranks that the run began with
	Local []int  // the members on this node
}

// named returns the name under which all nodes know the group's fence.
func (g Group) named(name string) string {
	if g.Ranks == "" {
		return name
	}
	return name + " of " + g.Ranks
}

// mostRank is the highest valid rank number.
const mostRank = 1<<31 - 1

// members is a group resolved to its ranks in the world.
type members struct {
	ranks []int // sorted; nil: all ranks below [members.begun]
	begun int
	nodes int // number of nodes that have members
}

// has reports whether a rank belongs to the group.
func (m *members) has(rank int) bool {
	if m.ranks == nil {
		return rank < m.begun
	}
	_, is := slices.BinarySearch(m.ranks, rank)
	return is
}

// of returns those of the given ranks that belong to the group.
func (m *members) of(ranks []int) (own []int) {
	for _, rank := range ranks {
		if m.has(rank) {
			own = append(own, rank)
		}
	}
	return own
}

// group resolves the ranges of a group. It returns an error if they are malformed or name a rank
// that does not exist.
func (w *World) group(ranks string) (*members, error) {
	if ranks == "" {
		return &members{begun: w.begun, nodes: w.nodes}, nil
	}
	set, err := prose.ParseRanges(ranks, mostRank)
	if err != nil {
		return nil, fmt.Errorf("cannot fence: %v", err)
	}
	on := make(map[int]bool)
	for _, rank := range set {
		place := w.of(rank)
		if place == nil {
			return nil, fmt.Errorf("cannot fence: there is no rank %d", rank)
		}
		on[place.Node] = true
	}
	return &members{ranks: set, nodes: len(on)}, nil
}

// add adds ranks that did not exist when the run began. Each place names a node and its new ranks.
func (w *World) add(places []Place) {
	for _, more := range places {
		place := w.at(more.Node)
		if place == nil {
			continue
		}
		place.Ranks = append(place.Ranks, more.Ranks...)
		for _, rank := range more.Ranks {
			if rank >= len(w.byRank) {
				w.byRank = append(w.byRank, make([]*Place, rank+1-len(w.byRank))...)
			}
			w.byRank[rank] = place
		}
	}
}
