package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// toneOf returns the severity of a check's verdict.
func toneOf(v check.Verdict) Tone {
	switch v {
	case check.Pass, check.Skip:
		return Good
	case check.Fail:
		return Bad
	default:
		return Mind
	}
}

// verdictOrder lists the verdicts, the worst first.
var verdictOrder = []check.Verdict{check.Fail, check.Wait, check.Unknown, check.Warn, check.Skip, check.Pass}

// verdictRank returns the position of a verdict in verdictOrder, or -1 if it is unknown.
func verdictRank(v string) int { return slices.Index(verdictOrder, check.Verdict(v)) }

// checks groups equal findings of the nodes' checks, the worst first. Findings that passed form one
// group per check, even if the observed values differ.
func checks(nodes []timeline.Node) []CheckGroup {
	type key struct{ id, verdict, observed string }
	at := make(map[key]int) // index in groups
	groups := []CheckGroup{}
	for i := range nodes {
		if nodes[i].Check == nil {
			continue
		}
		for _, f := range nodes[i].Check.Findings {
			observed := words(f.Observed)
			k := key{clean(f.ID, 80), clean(string(f.Verdict), 10), observed}
			if toneOf(f.Verdict) == Good {
				k.observed = ""
			}
			// Find or create the group, and add the node to it.
			if _, had := at[k]; !had {
				at[k] = len(groups)
				groups = append(groups, CheckGroup{ID: k.id, Verdict: k.verdict, Tone: toneOf(f.Verdict), Observed: observed, Expected: words(f.Expected), Hint: words(f.Hint)})
			}
			g := &groups[at[k]]
			if g.Observed != observed {
				g.Observed = "" // differs between the nodes
			}
			if had := g.ranks; len(had) == 0 || had[len(had)-1] != nodes[i].Rank {
				g.ranks = append(had, nodes[i].Rank)
			}
		}
	}
	for i := range groups {
		groups[i].Count, groups[i].On = len(groups[i].ranks), onNodes(nodes, groups[i].ranks)
	}
	slices.SortStableFunc(groups, func(a, b CheckGroup) int {
		return cmp.Or(cmp.Compare(verdictRank(a.Verdict), verdictRank(b.Verdict)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
	return groups
}

// sortedOut splits the check groups into those that did not pass, and those that passed or were
// skipped.
func (v *View) sortedOut() (wrong, passed []CheckGroup) {
	at := slices.IndexFunc(v.Checks, func(g CheckGroup) bool { return g.Tone == Good })
	if at < 0 {
		return v.Checks, nil
	}
	return v.Checks[:at], v.Checks[at:]
}

// onNodes names nodes: all of them by their number, a few by their hosts, many by their indices.
func onNodes(nodes []timeline.Node, ranks []int) string {
	const few = 4
	switch {
	case len(ranks) == len(nodes):
		return fmt.Sprintf("all %d", len(nodes))
	case len(ranks) > few:
		return fmt.Sprintf("%d: ranks %s", len(ranks), ranges(ranks))
	}
	return strings.Join(mapped(ranks, func(rank int) string { return nameOf(rank, clean(nodes[rank].Host, 80)) }), ", ")
}

// nameOf names a node. Hosts may be equal, so the name includes the node index.
func nameOf(rank int, host string) string {
	if host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("%s (rank %d)", host, rank)
}

// ranges formats a sorted list of indices as "0-3, 7", and cuts it if it is long.
func ranges(ranks []int) string {
	const most = 12
	parts := strings.Split(textutil.FormatRanges(ranks), ",")
	if len(parts) > most {
		parts = append(parts[:most], "…")
	}
	return strings.Join(parts, ", ")
}
