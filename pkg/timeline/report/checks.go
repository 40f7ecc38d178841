package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/timeline"
)

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

var verdictOrder = []check.Verdict{check.Fail, check.Wait, check.Unknown, check.Warn, check.Skip, check.Pass}

func verdictRank(v string) int { return slices.Index(verdictOrder, check.Verdict(v)) }

// checks are what the nodes' checks say, the worst first. What passed is one
// group a check, whatever was observed.
func checks(nodes []timeline.Node) []CheckGroup {
	type key struct{ id, verdict, observed string }
	groups := make(map[key]*CheckGroup)
	ranks := make(map[key][]int)
	var keys []key
	for i := range nodes {
		if nodes[i].Check == nil {
			continue
		}
		for _, f := range nodes[i].Check.Findings {
			k := key{clean(f.ID, 80), clean(string(f.Verdict), 10), ""}
			observed := words(f.Observed)
			if toneOf(f.Verdict) != Good {
				k.observed = observed
			}
			g := groups[k]
			if g == nil {
				g = &CheckGroup{ID: k.id, Verdict: k.verdict, Tone: toneOf(f.Verdict), Observed: observed, Expected: words(f.Expected), Hint: words(f.Hint)}
				groups[k] = g
				keys = append(keys, k)
			}
			if g.Observed != observed {
				g.Observed = "" // not the same on all of them
			}
			if had := ranks[k]; len(had) == 0 || had[len(had)-1] != nodes[i].Rank {
				ranks[k] = append(had, nodes[i].Rank)
			}
		}
	}
	out := make([]CheckGroup, 0, len(keys))
	for _, k := range keys {
		g := groups[k]
		g.Count, g.On = len(ranks[k]), onNodes(nodes, ranks[k])
		out = append(out, *g)
	}
	slices.SortStableFunc(out, func(a, b CheckGroup) int {
		return cmp.Or(cmp.Compare(verdictRank(a.Verdict), verdictRank(b.Verdict)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// onNodes names nodes: all of them, few by their hosts, many by their ranks.
func onNodes(nodes []timeline.Node, ranks []int) string {
	const few = 4
	switch {
	case len(ranks) == len(nodes):
		return fmt.Sprintf("all %d", len(nodes))
	case len(ranks) > few:
		return fmt.Sprintf("%d: ranks %s", len(ranks), ranges(ranks))
	}
	var names []string
	for _, rank := range ranks {
		names = append(names, nameOf(rank, clean(nodes[rank].Host, 80)))
	}
	return strings.Join(names, ", ")
}

// nameOf is a node in words; hosts may be the same, ranks are not.
func nameOf(rank int, host string) string {
	if host == "" {
		return fmt.Sprintf("rank %d", rank)
	}
	return fmt.Sprintf("%s (rank %d)", host, rank)
}

// ranges is a sorted list of ranks as "0-3, 7", cut where it is long.
func ranges(ranks []int) string {
	const most = 12
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		part := fmt.Sprint(ranks[i])
		if j > i {
			part = fmt.Sprintf("%d-%d", ranks[i], ranks[j])
		}
		if parts = append(parts, part); len(parts) == most && j+1 < len(ranks) {
			parts = append(parts, "…")
			break
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
