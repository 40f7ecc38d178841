package doctor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

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
