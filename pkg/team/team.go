// Package team decides which nodes of a launch the driver gets if there are more than it needs, and
// holds the head's view of the membership. The chosen nodes are the members, or the team. Each
// member has a place, a number from 0 to the number of members minus one.
package team

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Bounds are the minimum and the maximum number of nodes for the driver. The zero value means all
// nodes of the launch.
type Bounds struct{ Min, Max int }

// ParseBounds parses a number of at least 1, which is both the minimum and the maximum, or two
// numbers separated by a colon, as in torchrun.
func ParseBounds(s string) (Bounds, error) {
	first, second, two := strings.Cut(s, ":")
	if !two {
		second = first
	}
	least, err := strconv.ParseInt(first, 10, 32)
	most, err2 := strconv.ParseInt(second, 10, 32)
	if err != nil || err2 != nil || least < 1 || most < least {
		return Bounds{}, errors.New("give a number of nodes, or the least and the most, as in 4:6")
	}
	return Bounds{Min: int(least), Max: int(most)}, nil
}

// String returns the form that ParseBounds parses.
func (b Bounds) String() string {
	if b.Min == b.Max {
		return strconv.Itoa(b.Min)
	}
	return fmt.Sprintf("%d:%d", b.Min, b.Max)
}

// Of returns the bounds in a launch of size nodes.
func (b Bounds) Of(size int) Bounds {
	if b.Min == 0 {
		return Bounds{Min: size, Max: size}
	}
	return Bounds{Min: b.Min, Max: min(b.Max, size)}
}

// muster is the input for the choice of the members: the head's view of the nodes at one poll.
// Nodes are given by their indices in the launch.
type muster struct {
	size   int
	bounds Bounds
	ready  []int                      // joined and checked, sorted
	gone   map[int]signal.DroppedRank // nodes that have failed or are lost
	// patient reports that no further node has become ready for so long that the head now starts with
	// the minimum for the driver.
	patient bool
	// settled reports that enough nodes have been ready for so long that small delays do not influence
	// the choice.
	settled bool
	team    []int // the present members, by place; nil before the first choice
}

// choose returns the new members. These are the present ones if nothing changes, or cannot change
// yet, and nil if no choice is possible yet. It also reports whether a choice will be possible at
// all.
func (m muster) choose() (team []int, possible bool) {
	_, headless := m.gone[0]
	if headless || m.size-len(m.gone) < m.bounds.Min {
		return m.team, false
	}
	fit := slices.DeleteFunc(slices.Clone(m.ready), m.isGone)
	if m.team == nil {
		return m.first(fit), true
	}
	return m.next(fit), true
}

func (m muster) isGone(rank int) bool {
	_, gone := m.gone[rank]
	return gone
}

// first returns the first members, chosen from the nodes that are fit. It waits for the maximum for
// the driver, and finally accepts the minimum. Nodes with the lowest indices come first, because
// launchers put neighbours next to each other. It returns nil while it waits.
func (m muster) first(fit []int) []int {
	all := len(fit) == m.size-len(m.gone)
	switch {
	case len(fit) < m.bounds.Min || fit[0] != 0:
		return nil
	case all || m.patient || m.settled && len(fit) >= m.bounds.Max:
		return fit[:min(len(fit), m.bounds.Max)]
	default:
		return nil
	}
}

// next replaces members that are gone by spares. If there are too few spares, the number of members
// shrinks, as far as allowed, and the last members take the free places. All others keep their
// places, which are in the environment of their services.
func (m muster) next(fit []int) []int {
	if !slices.ContainsFunc(m.team, m.isGone) {
		return m.team
	}
	spares := slices.DeleteFunc(fit, func(rank int) bool { return slices.Contains(m.team, rank) })
	team := slices.Clone(m.team)
	for place := 0; place < len(team); place++ {
		switch {
		case !m.isGone(team[place]):
		case len(spares) > 0:
			team[place], spares = spares[0], spares[1:]
		default:
			last := len(team) - 1
			team[place], team = team[last], team[:last]
			place--
		}
	}
	if len(team) < m.bounds.Min {
		return m.team
	}
	return team
}

// seated returns the records of the members of a generation; old are those of the previous one. If
// ranked is set, the service of a member must restart if its place or the number of members has
// changed.
func seated(old []signal.Member, team []int, generation int, ranked bool) []signal.Member {
	members := make([]signal.Member, 0, len(team))
	for place, rank := range team {
		member := signal.Member{Rank: rank, Since: generation}
		at := slices.IndexFunc(old, func(m signal.Member) bool { return m.Rank == rank })
		if at >= 0 && (!ranked || at == place && len(old) == len(team)) {
			member.Since = old[at].Since
		}
		members = append(members, member)
	}
	return members
}
