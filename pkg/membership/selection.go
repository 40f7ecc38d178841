// Package membership decides which nodes of a launch the driver gets if there are more than it
// needs, and holds the head's view of the membership. The chosen nodes are the members, or the
// team. Each member has a place, a number from 0 to the number of members minus one.
//
// It also decides which conditions for opening the gate are not met, which nodes do not meet them,
// and what these nodes report about the reason: for the log of the head, for the status command, and
// for opening the gate.
package membership

import (
	"cmp"
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
	lowest, err := strconv.ParseInt(first, 10, 32)
	highest, err2 := strconv.ParseInt(second, 10, 32)
	if err != nil || err2 != nil || lowest < 1 || highest < lowest {
		return NodeRange{}, errors.New("give a number of nodes, or minimum and maximum, as in 4:6")
	}
	return NodeRange{Min: int(lowest), Max: int(highest)}, nil
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
	EarlierAttempts
	// unlinked has the ready nodes without a peer link. It is empty if there are no peer links.
	unlinked map[int]bool
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
func (m *teamSelection) chooseMembers() (team []int, possible bool) {
	m.ignoreUnusedLinks()
	_, headless := m.gone[0]
	if headless || m.size-len(m.gone) < m.bounds.Min {
		return m.members, false
	}
	if m.members == nil {
		return m.chooseFirst(), true
	}
	return m.replaceGone(), true
}

// ignoreUnusedLinks clears unlinked if no node has a link: connections may be impossible here. The
// link of a node that an earlier attempt has lost is nevertheless awaited before the first choice.
func (m *teamSelection) ignoreUnusedLinks() {
	isLinked := func(node int) bool { return node != 0 && !m.unlinked[node] }
	if slices.ContainsFunc(m.ready, isLinked) {
		return
	}
	unlinked := make(map[int]bool)
	for _, node := range m.Lost {
		unlinked[node] = m.unlinked[node] && m.members == nil && !m.idle
	}
	m.unlinked = unlinked
}

func (m *teamSelection) isGone(node int) bool {
	_, gone := m.gone[node]
	return gone
}

// fit returns the nodes that are ready and not gone, sorted.
func (m *teamSelection) fit() []int {
	return slices.DeleteFunc(slices.Clone(m.ready), m.isGone)
}

// available returns the fit nodes without those that stand by until they have a link: an earlier
// attempt has lost them, and most likely because they could not be reached. If too few nodes would
// be left, it returns all.
func (m *teamSelection) available() []int {
	fit := m.fit()
	linked := slices.DeleteFunc(slices.Clone(fit), func(node int) bool {
		return slices.Contains(m.Lost, node) && m.unlinked[node] && !slices.Contains(m.members, node)
	})
	if len(linked) < m.bounds.Min {
		return fit
	}
	return linked
}

// sortByPreference moves nodes that have failed repeatedly to the end, and behind them those
// without a link: a node that has failed works now, but one without a link cannot be reached.
func (m *teamSelection) sortByPreference(nodes []int) {
	penalty := func(node int) (sum int) {
		if slices.Contains(m.Suspect, node) {
			sum++
		}
		if m.unlinked[node] {
			sum += 2
		}
		return sum
	}
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(penalty(a), penalty(b)) })
}

// chooseFirst returns the first members. It waits for the maximum for the driver, but not for nodes
// that an earlier attempt has lost, and finally accepts the minimum. It returns nil while it waits.
func (m *teamSelection) chooseFirst() []int {
	isLinked := func(node int) bool { return !m.unlinked[node] }
	isSettled := m.settled && countFunc(m.fit(), isLinked) >= m.bounds.Max
	if m.isEnough() && (isSettled || m.acceptMinimum || m.isComplete() && !m.awaitsLink()) {
		return m.preferred()
	}
	return nil
}

// preferred returns the available nodes that are preferred, at most the maximum for the driver.
// Nodes with the lowest indices come first, because launchers put neighbours next to each other.
func (m *teamSelection) preferred() []int {
	nodes := m.available()
	m.sortByPreference(nodes[1:]) // the head is always a member
	nodes = nodes[:min(len(nodes), m.bounds.Max)]
	slices.Sort(nodes)
	return nodes
}

// isComplete reports whether all available nodes are known: all others are gone, or were lost in an
// earlier attempt and are not back.
func (m *teamSelection) isComplete() bool {
	available := m.available()
	missing := m.size - len(m.gone) - len(available)
	isAway := func(node int) bool { return !m.isGone(node) && !slices.Contains(available, node) }
	away := countFunc(m.Lost, isAway)
	return missing == 0 || missing == away && (m.idle || m.LostForGood)
}

// awaitsLink reports whether the first choice waits a moment for the link of a node that would then
// be preferred.
func (m *teamSelection) awaitsLink() bool {
	if m.members != nil || m.idle || !m.isEnough() {
		return false
	}
	linked := *m
	linked.unlinked = nil
	return linked.isComplete() && !slices.Equal(m.preferred(), linked.preferred())
}

// isEnough reports whether the driver can start on the nodes that are fit.
func (m *teamSelection) isEnough() bool {
	fit := m.fit()
	return len(fit) >= m.bounds.Min && fit[0] == 0
}

func countFunc(nodes []int, match func(node int) bool) (count int) {
	for _, node := range nodes {
		if match(node) {
			count++
		}
	}
	return count
}

// replaceGone replaces members that are gone by spares. If there are too few spares, the number of
// members shrinks, as far as allowed, and the last members take the free places. All others keep
// their places, which are in the environment of their services.
func (m *teamSelection) replaceGone() []int {
	if !slices.ContainsFunc(m.members, m.isGone) {
		return m.members
	}
	available := m.available()
	m.sortByPreference(available)
	isMember := func(node int) bool { return slices.Contains(m.members, node) }
	spares := slices.DeleteFunc(available, isMember)
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

// nextMembers returns the records of the members of a generation; old are those of the previous
// one. If ranked is set, the service of a member must restart if its place or the number of members
// has changed.
func nextMembers(old []Member, team []int, generation int, ranked bool) []Member {
	members := make([]Member, 0, len(team))
	for place, node := range team {
		member := Member{NodeIndex: node, SinceGeneration: generation}
		at := slices.IndexFunc(old, func(m Member) bool { return m.NodeIndex == node })
		if at >= 0 && (!ranked || at == place && len(old) == len(team)) {
			member.SinceGeneration = old[at].SinceGeneration
		}
		members = append(members, member)
	}
	return members
}
