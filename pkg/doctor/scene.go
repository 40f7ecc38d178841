package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
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

// mostSaid is how many different things one line tells.
const mostSaid = 3

// merge makes one line of what several nodes say of the same: a line for each check and each verdict but PASS and SKIP,
// which are left out where another node says worse.
func (c *scene) merge(all []check.Finding) (lines []check.Finding) {
	for _, group := range groupBy(all, func(f check.Finding) string { return f.ID }) {
		wrong := slices.ContainsFunc(group, func(f check.Finding) bool { return !f.Quiet() })
		passed := slices.ContainsFunc(group, func(f check.Finding) bool { return f.Verdict == check.Pass })
		for _, same := range groupBy(group, func(f check.Finding) check.Verdict { return f.Verdict }) {
			if f := same[0]; f.Quiet() && wrong || f.Verdict == check.Skip && passed {
				continue
			}
			lines = append(lines, c.line(same))
		}
	}
	return lines
}

// groupBy keeps the order in which the keys come first.
func groupBy[K comparable](all []check.Finding, key func(check.Finding) K) (groups [][]check.Finding) {
	at := make(map[K]int)
	for _, f := range all {
		i, known := at[key(f)]
		if !known {
			i = len(groups)
			at[key(f)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// mostText is how many characters of what nodes say are in a line.
const mostText = 220

// line makes one line of what several nodes say that have the same verdict on the same check.
func (c *scene) line(same []check.Finding) check.Finding {
	f := same[0]
	f.Device, f.Ranks = nil, nil
	texts := groupBy(same, text)
	slices.SortStableFunc(texts, func(a, b []check.Finding) int { return cmp.Compare(len(b), len(a)) })
	var parts []string
	for _, group := range texts {
		who := ranksOf(group)
		switch text := text(group[0]); {
		case f.Quiet():
			parts = append(parts, text+c.on(who, len(texts) == 1))
		case len(c.Facts) > 1 && len(who) < len(c.Facts):
			// Who it is comes first: the rest may be too long for the line.
			parts = append(parts, c.hosts(who)+": "+prose.Cut(text, mostText/len(texts)))
		default:
			parts = append(parts, prose.Cut(text, mostText)+c.on(who, true))
		}
	}
	f.Observed = prose.List(parts, mostSaid, "; ")
	if hints := groupBy(same, func(f check.Finding) string { return f.Hint }); len(hints) > 1 {
		f.Hint = c.hints(hints)
	}
	if !f.Quiet() {
		f.Ranks = ranksOf(same)
	}
	return f
}

// hints tells what to do on which nodes, where the hints of the nodes differ.
func (c *scene) hints(groups [][]check.Finding) string {
	var parts []string
	for _, group := range groups[:min(len(groups), mostSaid)] {
		parts = append(parts, "on "+c.hosts(ranksOf(group))+": "+group[0].Hint)
	}
	if len(groups) > mostSaid {
		parts = append(parts, "and so on")
	}
	return strings.Join(parts, "; ")
}

// text is what a node's finding says.
func text(f check.Finding) string {
	if f.Device == nil {
		return f.Observed
	}
	return f.Device.String() + ": " + f.Observed
}

func ranksOf(all []check.Finding) (ranks []int) {
	for _, f := range all {
		ranks = append(ranks, f.Ranks...)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
