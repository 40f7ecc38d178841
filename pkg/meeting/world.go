package meeting

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Place is a node of the team, and which ranks it has: none where there is a driver.
type Place struct {
	Node  int // its place in the team
	Host  string
	Ranks []int
}

// World is all nodes of the team.
type World struct {
	places []Place
	nodes  int      // that have any of the ranks that the run has begun with
	begun  int      // how many these are
	byRank []*Place // nil where there is none
}

// NewWorld returns the world of these nodes, which are in their order. Ranks are numbered from 0 on.
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

// at returns a node's place.
func (w World) at(node int) *Place {
	if node < 0 || node >= len(w.places) {
		return nil
	}
	return &w.places[node]
}

// of returns a rank's place.
func (w World) of(rank int) *Place {
	if rank < 0 || rank >= len(w.byRank) {
		return nil
	}
	return w.byRank[rank]
}

// owner returns a rank's name in a slot, or that of the node's other programs.
func (p *Place) owner(rank int) string {
	if rank >= 0 {
		return strconv.Itoa(rank)
	}
	return "n" + strconv.Itoa(p.Node)
}

// words says who a rank is, or one of the node's other programs.
func (p *Place) words(rank int) string {
	if rank >= 0 {
		return fmt.Sprintf("rank %d on %s", rank, p.Host)
	}
	return "a program on " + p.Host
}

// home returns where an owner is: nil where there is none such.
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

// words says who an owner is.
func (w World) words(owner string) string {
	place := w.home(owner)
	if place == nil {
		return owner
	}
	return place.words(rankOf(owner))
}

// missing says which ranks are, node by node.
func (w World) missing(by map[int][]int) string {
	var parts []string
	for _, place := range w.places {
		if ranks := by[place.Node]; len(ranks) > 0 {
			parts = append(parts, prose.Ranks(ranks)+" on "+place.Host)
		}
	}
	return prose.List(parts, 16, ", ")
}
