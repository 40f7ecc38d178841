package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// scene is all that is known of a launch: what a report is made of.
type scene struct {
	Launch
	// ShareErr is why nobody could meet in the log directory; nil: they could.
	ShareErr error
	Waited   time.Duration // for all to be seen
	NotSeen  []int         // whose records never came
	Silent   []int         // who came, and told nothing
	Facts    []Facts       // by rank, those that came
	Trips    map[int]time.Duration
	Took     time.Duration
}

// several tells whether other nodes are asked.
func (l Launch) several() bool { return l.Alone == nil && l.Mistake == nil && l.Identity.Size > 1 }

// apart tells whether the nodes should be different machines.
func (l Launch) apart() bool { return l.several() && l.Identity.Launcher != roles.Local }

// host names a rank.
func (c *scene) host(rank int) string {
	for _, f := range c.Facts {
		if f.Rank == rank {
			return cmp.Or(f.Host, f.Hostname)
		}
	}
	if rank < len(c.Identity.Hosts) {
		return c.Identity.Hosts[rank]
	}
	return nameless(rank)
}

// nameless is a rank whose host nobody tells.
func nameless(rank int) string { return fmt.Sprintf("rank %d", rank) }

// hosts names some ranks: "n[0,2-5]", with the ranks where several nodes have one name, or by their ranks alone where
// nobody tells the names.
func (c *scene) hosts(ranks []int) string {
	told := prose.Ranks(ranks)
	if slices.ContainsFunc(ranks, func(rank int) bool { return c.host(rank) == nameless(rank) }) {
		return told
	}
	names := roles.CompactNodeList(c.names(ranks))
	if different, _ := c.by(func(f Facts) string { return c.host(f.Rank) }); len(different) < len(c.Facts) {
		return fmt.Sprintf("%s (%s)", names, told)
	}
	return names
}

func (c *scene) names(ranks []int) (names []string) {
	for _, rank := range ranks {
		names = append(names, c.host(rank))
	}
	return names
}

// on says which nodes said so, where there are several.
func (c *scene) on(ranks []int, alone bool) string {
	switch {
	case len(c.Facts) < 2:
		return ""
	case alone && len(ranks) == len(c.Facts):
		return fmt.Sprintf(" (all %d nodes)", len(ranks))
	default:
		return " on " + c.hosts(ranks)
	}
}

// by groups the ranks by what their facts have for a value, the empty one left out.
func (c *scene) by(of func(Facts) string) (values []string, ranks map[string][]int) {
	ranks = make(map[string][]int)
	for _, f := range c.Facts {
		if value := of(f); value != "" {
			ranks[value] = append(ranks[value], f.Rank)
		}
	}
	return slices.Sorted(maps.Keys(ranks)), ranks
}
