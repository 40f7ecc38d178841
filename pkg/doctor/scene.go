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

// scene holds everything that is known about a launch. The checks read it.
type scene struct {
	Launch
	// ShareErr is the reason why the nodes could not use the log directory; nil if they could.
	ShareErr error
	Waited   time.Duration         // time spent waiting for all nodes to join
	NotSeen  []int                 // nodes that have not joined
	Silent   []int                 // nodes that have joined but sent no facts
	Facts    []Facts               // facts of the nodes that have sent them, sorted by node index
	Trips    map[int]time.Duration // round-trip times by node index
	Took     time.Duration         // duration of the examination
}

// several reports whether the launch has other nodes.
func (l Launch) several() bool { return l.Alone == nil && l.Mistake == nil && l.Identity.Size > 1 }

// apart reports whether the nodes should be different machines.
func (l Launch) apart() bool { return l.several() && l.Identity.Launcher != roles.Local }

// host returns the host name of a node, or "rank N" if it is unknown.
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

// nameless returns the text for a node with an unknown host name.
func nameless(rank int) string { return fmt.Sprintf("rank %d", rank) }

// hosts formats node indices as a short text: "n[0,2-5]". It adds the indices if several nodes have
// the same name. It returns only the indices, as "ranks 0,2-5", if a name is unknown.
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

// names returns the host names of the nodes.
func (c *scene) names(ranks []int) (names []string) {
	for _, rank := range ranks {
		names = append(names, c.host(rank))
	}
	return names
}

// on returns text that names the nodes of a finding: " on n[0,2]", or " (all 4 nodes)" if alone is
// true and the finding is about all nodes. It is empty if there is only one node.
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

// by groups the node indices by the value that the parameter returns for the facts of each node. It
// leaves out empty values. It returns the sorted values and the nodes of each of them.
func (c *scene) by(of func(Facts) string) (values []string, ranks map[string][]int) {
	ranks = make(map[string][]int)
	for _, f := range c.Facts {
		if value := of(f); value != "" {
			ranks[value] = append(ranks[value], f.Rank)
		}
	}
	return slices.Sorted(maps.Keys(ranks)), ranks
}

// mostSaid is the maximum number of different texts in one finding.
const mostSaid = 3

// merge combines the findings of several nodes: it returns one finding for each check and verdict.
// It leaves out Pass and Skip if another node has a worse verdict, and Skip if another node has
// passed.
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

// groupBy groups findings by key, in the order in which the keys first occur.
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

// mostText is the maximum length of the nodes' texts in one finding, in characters.
const mostText = 220

// line combines findings of several nodes that have the same check and verdict into one.
func (c *scene) line(same []check.Finding) check.Finding {
	f := same[0]
	f.Device, f.Ranks = nil, nil
	// Group the nodes by text, the most common text first.
	texts := groupBy(same, text)
	slices.SortStableFunc(texts, func(a, b []check.Finding) int { return cmp.Compare(len(b), len(a)) })
	var parts []string
	for _, group := range texts {
		who := ranksOf(group)
		switch text := text(group[0]); {
		case f.Quiet():
			parts = append(parts, text+c.on(who, len(texts) == 1))
		case len(c.Facts) > 1 && len(who) < len(c.Facts):
			// The nodes come first, because the rest may be cut off.
			parts = append(parts, c.hosts(who)+": "+prose.Cut(text, mostText/len(texts)))
		default:
			parts = append(parts, prose.Cut(text, mostText)+c.on(who, true))
		}
	}
	// Combine the texts and the hints.
	f.Observed = prose.List(parts, mostSaid, "; ")
	if hints := groupBy(same, func(f check.Finding) string { return f.Hint }); len(hints) > 1 {
		f.Hint = c.hints(hints)
	}
	if !f.Quiet() {
		f.Ranks = ranksOf(same)
	}
	return f
}

// hints combines hints that differ between nodes: "on n[0,2]: …; on n1: …".
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

// text returns the text of a node's finding, with its device if it has one.
func text(f check.Finding) string {
	if f.Device == nil {
		return f.Observed
	}
	return f.Device.String() + ": " + f.Observed
}

// ranksOf returns the sorted node indices of all findings.
func ranksOf(all []check.Finding) (ranks []int) {
	for _, f := range all {
		ranks = append(ranks, f.Ranks...)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
