package meeting

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Place is a node of the team with its ranks. A node has no ranks if the run has a driver instead.
type Place struct {
	Node  int // node index in the team
	Host  string
	Ranks []int
}

// World is the assignment of ranks to the nodes of the team.
type World struct {
	places []Place
	nodes  int      // number of nodes with initial ranks
	begun  int      // number of initial ranks: those that the run began with
	byRank []*Place // nil for numbers without a rank
}

// NewWorld returns the world of the given nodes, which must be sorted by node index. Ranks are
// numbered from 0.
func NewWorld(places []Place) World {
	w := World{places: places}
	for i := range places {
		place := &places[i]
		for _, rank := range place.Ranks {
			if rank >= len(w.byRank) {
				w.byRank = append(w.byRank, make([]*Place, rank+1-len(w.byRank))...)
			}
			w.byRank[rank] = place
		}
		if len(place.Ranks) > 0 {
			w.nodes++
		}
	}
	w.begun = len(w.byRank)
	return w
}

// at returns the place of a node; nil if there is no such node.
func (w World) at(node int) *Place {
	if node < 0 || node >= len(w.places) {
		return nil
	}
	return &w.places[node]
}

// of returns the place of a rank's node; nil if there is no such rank.
func (w World) of(rank int) *Place {
	if rank < 0 || rank >= len(w.byRank) {
		return nil
	}
	return w.byRank[rank]
}

// owner returns the owner's name of a rank, or of the node's other programs if rank is -1.
func (p *Place) owner(rank int) string {
	if rank >= 0 {
		return strconv.Itoa(rank)
	}
	return "n" + strconv.Itoa(p.Node)
}

// words describes a rank, or another program of the node if rank is -1, for messages.
func (p *Place) words(rank int) string {
	if rank >= 0 {
		return fmt.Sprintf("rank %d on %s", rank, p.Host)
	}
	return "a program on " + p.Host
}

// home returns the place of an owner's node; nil if there is no such owner.
func (w World) home(owner string) *Place {
	if text, node := strings.CutPrefix(owner, "n"); node {
		if number, err := strconv.Atoi(text); err == nil {
			return w.at(number)
		}
		return nil
	}
	rank, err := strconv.Atoi(owner)
	if err != nil || strconv.Itoa(rank) != owner {
		return nil
	}
	return w.of(rank)
}

// words describes an owner for messages.
func (w World) words(owner string) string {
	place := w.home(owner)
	if place == nil {
		return owner
	}
	return place.words(rankOf(owner))
}

// missing lists ranks by node, for messages.
func (w World) missing(by map[int][]int) string {
	var parts []string
	for _, place := range w.places {
		if ranks := by[place.Node]; len(ranks) > 0 {
			parts = append(parts, prose.Ranks(ranks)+" on "+place.Host)
		}
	}
	return prose.List(parts, 16, ", ")
}
