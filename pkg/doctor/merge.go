package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// host names a rank.
func (c scene) host(rank int) string {
	for _, f := range c.Facts {
		if f.Rank == rank {
			return cmp.Or(f.Host, f.Hostname)
		}
	}
	if rank < len(c.Hosts) {
		return c.Hosts[rank]
	}
	return nameless(rank)
}

// hosts names some ranks: "n[0,2-5]", with the ranks where several nodes have
// one name, or by their ranks alone where nobody tells the names.
func (c scene) hosts(ranks []int) string {
	names := c.names(ranks)
	told := prose.Ranks(ranks)
	switch {
	case slices.ContainsFunc(ranks, func(rank int) bool { return c.host(rank) == nameless(rank) }):
		return told
	case c.ambiguous():
		return fmt.Sprintf("%s (%s)", roles.CompactNodeList(names), told)
	default:
		return roles.CompactNodeList(names)
	}
}

// nameless is a rank whose host nobody tells.
func nameless(rank int) string { return fmt.Sprintf("rank %d", rank) }

// ambiguous tells whether several nodes have one name.
func (c scene) ambiguous() bool {
	names, _ := c.by(func(f Facts) string { return c.host(f.Rank) })
	return len(names) < len(c.Facts)
}

func (c scene) names(ranks []int) (names []string) {
	for _, rank := range ranks {
		names = append(names, c.host(rank))
	}
	return names
}

// said is a finding of one rank.
type said struct {
	check.Finding
	rank  int
	inner bool
}

// mostSaid is how many different things one line tells.
const mostSaid = 3

// merge makes one line of what several nodes say of the same: a line for each check and each verdict but PASS and SKIP,
// which are left out where another node says worse.
func (c scene) merge(all []said) []Finding {
	var lines []Finding
	for _, group := range groupBy(all, func(s said) string { return s.ID }) {
		byVerdict := groupBy(group, func(s said) string { return string(s.Verdict) })
		wrong := slices.ContainsFunc(group, func(s said) bool { return !quiet(s.Verdict) })
		passed := slices.ContainsFunc(group, func(s said) bool { return s.Verdict == check.Pass })
		for _, same := range byVerdict {
			if v := same[0].Verdict; quiet(v) && wrong || v == check.Skip && passed {
				continue
			}
			lines = append(lines, c.line(same))
		}
	}
	return lines
}

func quiet(v check.Verdict) bool { return v == check.Pass || v == check.Skip }

// groupBy keeps the order in which the keys come first.
func groupBy(all []said, key func(said) string) (groups [][]said) {
	at := make(map[string]int)
	for _, s := range all {
		i, known := at[key(s)]
		if !known {
			i = len(groups)
			at[key(s)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], s)
	}
	return groups
}

// line makes one line of what several nodes say that have the same verdict on the same check.
func (c scene) line(same []said) Finding {
	f := same[0].Finding
	f.Device = nil
	texts := groupBy(same, said.text)
	slices.SortStableFunc(texts, func(a, b []said) int { return len(b) - len(a) })
	var parts []string
	for _, group := range texts {
		who := ranksOf(group)
		switch text := group[0].text(); {
		case quiet(f.Verdict):
			parts = append(parts, text+c.on(who, len(texts) == 1))
		case len(c.Facts) > 1 && len(who) < len(c.Facts):
			// Who it is comes first: the rest may be too long for the line.
			parts = append(parts, c.hosts(who)+": "+prose.Cut(text, mostText/len(texts)))
		default:
			parts = append(parts, prose.Cut(text, mostText)+c.on(who, true))
		}
	}
	f.Observed = prose.List(parts, mostSaid, "; ")
	if hints := groupBy(same, func(s said) string { return s.Hint }); len(hints) > 1 {
		f.Hint = c.hints(hints)
	}
	line := Finding{Finding: f, inner: same[0].inner}
	if !quiet(f.Verdict) {
		line.Nodes = c.names(ranksOf(same))
	}
	return line
}

// mostText is how many characters of what nodes say are in a line.
const mostText = 220

// hints tells what to do on which nodes, where the hints of the nodes differ.
func (c scene) hints(groups [][]said) string {
	var parts []string
	for _, group := range groups[:min(len(groups), mostSaid)] {
		parts = append(parts, "on "+c.hosts(ranksOf(group))+": "+group[0].Hint)
	}
	if len(groups) > mostSaid {
		parts = append(parts, "and so on")
	}
	return strings.Join(parts, "; ")
}

func (s said) text() string {
	if s.Device == nil {
		return s.Observed
	}
	return s.Device.String() + ": " + s.Observed
}

// on says which nodes said so, where there are several.
func (c scene) on(ranks []int, alone bool) string {
	switch {
	case len(c.Facts) < 2:
		return ""
	case alone && len(ranks) == len(c.Facts):
		return fmt.Sprintf(" (all %d nodes)", len(ranks))
	default:
		return " on " + c.hosts(ranks)
	}
}

func ranksOf(all []said) []int {
	var ranks []int
	for _, s := range all {
		ranks = append(ranks, s.rank)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
