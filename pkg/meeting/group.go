package meeting

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Group is ranks that meet.
type Group struct {
	Ranks string // as ranges, 0-63,70; empty: all that the run has begun with
	Local []int  // those of this node
}

// named returns the name by which a group's fence is known to all nodes.
func (g Group) named(name string) string {
	if g.Ranks == "" {
		return name
	}
	return name + " of " + g.Ranks
}

// mostRank is what a rank's number may be.
const mostRank = 1<<31 - 1

// members are the ranks of a group as the whole world has them.
type members struct {
	ranks []int // in their order; nil: all below begun
	begun int
	nodes int // that have any of them
}

func (m *members) has(rank int) bool {
	if m.ranks == nil {
		return rank < m.begun
	}
	_, is := slices.BinarySearch(m.ranks, rank)
	return is
}

// of returns those of some ranks that are members.
func (m *members) of(ranks []int) (own []int) {
	for _, rank := range ranks {
		if m.has(rank) {
			own = append(own, rank)
		}
	}
	return own
}

// group returns who is in a group.
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

// add has ranks come that the run has not begun with: each place tells which, of its node.
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
