// Package team decides which nodes of a launch the driver gets, where there are
// more than it needs, and keeps what the head knows of them.
package team

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Bounds are how many nodes the driver needs, and how many it may get. The zero
// Bounds are all that were launched.
type Bounds struct{ Min, Max int }

// ParseBounds accepts a number of at least 1, which is both, or two of them with
// a colon between, as torchrun does.
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

// String returns what ParseBounds accepts.
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

// muster is what the head knows of the nodes at one look. Nodes are told by
// their ranks in the launch.
type muster struct {
	size   int
	bounds Bounds
	ready  []int                      // joined and checked, in order
	gone   map[int]signal.DroppedRank // with which something is wrong
	// patient: nobody has become ready for so long that no more are waited for
	// than the driver needs.
	patient bool
	// settled: enough are ready for so long that a choice among them is no
	// matter of who was a moment earlier.
	settled bool
	team    []int // the present one, by place; nil before the first
}

// choose returns the team that there should be: the present one where nothing
// is to change, and where it can't be changed yet; nil where none can be made
// yet. It tells whether there can be one at all.
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

// first is the first team, of those that are fit: as many as the driver may get,
// and in the end as many as it needs. The lowest ranks come first: launchers put
// neighbours next to each other.
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

// next has spares take the places of those that are gone. Where there are not
// enough of them the team shrinks, as far as it may, and the last ones move up.
// All others keep their places: what runs there was told them.
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

// seated are the members of a generation's team, where the one before had old.
// What runs on a member that is told its place must begin anew where the place
// or the team's size has changed.
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
