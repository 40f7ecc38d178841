// Package membership decides which nodes of a launch the driver gets if there are more than it
// needs, and holds the head's view of the membership. The chosen nodes are the members, or the
// team. Each member has a place, a number from 0 to the number of members minus one.
package membership

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NodeRange are the minimum and the maximum number of nodes for the driver. The zero value means
// all nodes of the launch.
type NodeRange struct{ Min, Max int }

// ParseNodeRange parses a number of at least 1, which is both the minimum and the maximum, or two
// numbers separated by a colon, as in torchrun.
func ParseNodeRange(s string) (NodeRange, error) {
	first, second, two := strings.Cut(s, ":")
	if !two {
		second = first
	}
	least, err := strconv.ParseInt(first, 10, 32)
	most, err2 := strconv.ParseInt(second, 10, 32)
	if err != nil || err2 != nil || least < 1 || most < least {
		return NodeRange{}, errors.New("give a number of nodes, or minimum and maximum, as in 4:6")
	}
	return NodeRange{Min: int(least), Max: int(most)}, nil
}

// String returns the form that ParseNodeRange parses.
func (b NodeRange) String() string {
	if b.Min == b.Max {
		return strconv.Itoa(b.Min)
	}
	return fmt.Sprintf("%d:%d", b.Min, b.Max)
}

// ForSize returns the bounds in a launch of size nodes.
func (b NodeRange) ForSize(size int) NodeRange {
	if b.Min == 0 {
		return NodeRange{Min: size, Max: size}
	}
	return NodeRange{Min: b.Min, Max: min(b.Max, size)}
}

// teamSelection is the input for the choice of the members: the head's view of the nodes at one
// poll. Nodes are given by their indices in the launch.
type teamSelection struct {
	size   int
	bounds NodeRange
	ready  []int                      // joined and checked, sorted
	gone   map[int]record.DroppedNode // nodes that have failed or are lost
	earlierAttempts
	// idle reports that no further node has become ready for a moment.
	idle bool
	// acceptMinimum reports that no further node has become ready for so long that the head now starts
	// with the minimum for the driver.
	acceptMinimum bool
	// settled reports that enough nodes have been ready for so long that small delays do not influence
	// the choice.
	settled bool
	members []int // the present members, by place; nil before the first choice
}

// chooseMembers returns the new members. These are the present ones if nothing changes, or cannot
// change yet, and nil if no choice is possible yet. It also reports whether a choice will be
// possible at all.
func (m teamSelection) chooseMembers() (team []int, possible bool) {
	_, headless := m.gone[0]
	if headless || m.size-len(m.gone) < m.bounds.Min {
		return m.members, false
	}
	fit := slices.DeleteFunc(slices.Clone(m.ready), m.isGone)
	if m.members == nil {
		return m.chooseFirst(fit), true
	}
	return m.replaceGone(fit), true
}

func (m teamSelection) isGone(node int) bool {
	_, gone := m.gone[node]
	return gone
}

// countLost returns the number of nodes that are still lost: neither ready nor known to be gone.
func (m teamSelection) countLost() (count int) {
	for node := range m.lost {
		if !m.isGone(node) && !slices.Contains(m.ready, node) {
			count++
		}
	}
	return count
}

// sortTrusted moves nodes that have failed repeatedly to the end.
func (m teamSelection) sortTrusted(nodes []int) {
	slices.SortStableFunc(nodes, func(a, b int) int {
		switch {
		case m.suspect[a] == m.suspect[b]:
			return 0
		case m.suspect[a]:
			return 1
		default:
			return -1
		}
	})
}

// chooseFirst returns the first members, chosen from the nodes that are fit. It waits for the
// maximum for the driver, but not for nodes that an earlier attempt has lost, and finally accepts
// the minimum. Nodes with the lowest indices come
// first, because launchers put neighbours next to each other, and those that have failed repeatedly
// last. It returns nil while it waits.
func (m teamSelection) chooseFirst(fit []int) []int {
	all := len(fit) == m.size-len(m.gone)
	allLiving := m.idle && len(fit) == m.size-len(m.gone)-m.countLost()
	switch {
	case len(fit) < m.bounds.Min || fit[0] != 0:
		return nil
	case all || allLiving || m.acceptMinimum || m.settled && len(fit) >= m.bounds.Max:
		m.sortTrusted(fit[1:]) // the head is always a member
		fit = fit[:min(len(fit), m.bounds.Max)]
		slices.Sort(fit)
		return fit
	default:
		return nil
	}
}

// replaceGone replaces members that are gone by spares. If there are too few spares, the number of
// members shrinks, as far as allowed, and the last members take the free places. All others keep
// their places, which are in the environment of their services.
func (m teamSelection) replaceGone(fit []int) []int {
	if !slices.ContainsFunc(m.members, m.isGone) {
		return m.members
	}
	m.sortTrusted(fit)
	spares := slices.DeleteFunc(fit, func(node int) bool { return slices.Contains(m.members, node) })
	team := slices.Clone(m.members)
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
		return m.members
	}
	return team
}

// memberRecords returns the records of the members of a generation; old are those of the previous
// one. If ranked is set, the service of a member must restart if its place or the number of members
// has changed.
func memberRecords(old []record.Member, team []int, generation int, ranked bool) []record.Member {
	members := make([]record.Member, 0, len(team))
	for place, node := range team {
		member := record.Member{NodeIndex: node, SinceGeneration: generation}
		at := slices.IndexFunc(old, func(m record.Member) bool { return m.NodeIndex == node })
		if at >= 0 && (!ranked || at == place && len(old) == len(team)) {
			member.SinceGeneration = old[at].SinceGeneration
		}
		members = append(members, member)
	}
	return members
}
