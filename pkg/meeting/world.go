package meeting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Place is a node of the team, and which ranks it has: none where there is a driver.
type Place struct {
	Node  int // the daemon's number
	Host  string
	Ranks []int
}

// World is all nodes of the team.
type World []Place

// ranks returns how many there are.
func (w World) ranks() (n int) {
	for _, place := range w {
		n += len(place.Ranks)
	}
	return n
}

// nodes returns how many have ranks.
func (w World) nodes() (n int) {
	for _, place := range w {
		if len(place.Ranks) > 0 {
			n++
		}
	}
	return n
}

// at returns a node's place.
func (w World) at(node int) *Place {
	if i := slices.IndexFunc(w, func(p Place) bool { return p.Node == node }); i >= 0 {
		return &w[i]
	}
	return nil
}

// of returns a rank's place.
func (w World) of(rank int) *Place {
	if i := slices.IndexFunc(w, func(p Place) bool { return slices.Contains(p.Ranks, rank) }); i >= 0 {
		return &w[i]
	}
	return nil
}

// owner returns a rank's name in a slot, or that of the node's other programs.
func (p *Place) owner(rank int) string {
	if rank >= 0 {
		return strconv.Itoa(rank)
	}
	return "n" + strconv.Itoa(p.Node)
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
	switch {
	case place == nil:
		return owner
	case owner[0] == 'n':
		return "a program on " + place.Host
	}
	return fmt.Sprintf("rank %s on %s", owner, place.Host)
}

// missing says which ranks are, node by node.
func (w World) missing(by map[int][]int) string {
	var parts []string
	for _, place := range w {
		if ranks := by[place.Node]; len(ranks) > 0 {
			parts = append(parts, prose.Ranks(ranks)+" on "+place.Host)
		}
	}
	return prose.List(parts, 16, ", ")
}
