package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
)

// severityOf returns the severity of a check's verdict.
func severityOf(v check.Verdict) Severity {
	switch v {
	case check.Pass, check.Skip:
		return SeverityGood
	case check.Fail:
		return SeverityBad
	default:
		return SeverityAttention
	}
}

// verdictOrder lists the verdicts, the worst first.
var verdictOrder = []check.Verdict{check.Fail, check.Wait, check.Unknown, check.Warn, check.Skip, check.Pass}

// verdictIndex returns the position of a verdict in verdictOrder, or -1 if it is unknown.
func verdictIndex(v string) int { return slices.Index(verdictOrder, check.Verdict(v)) }

// groupChecks groups equal findings of the nodes' checks, the worst first. Findings that passed
// form one group per check, even if the observed values differ.
func groupChecks(nodes []timeline.Node) []CheckGroup {
	type key struct{ id, verdict, observed string }
	at := make(map[key]int) // index in groups
	groups := []CheckGroup{}
	for i := range nodes {
		if nodes[i].Check == nil {
			continue
		}
		for _, f := range nodes[i].Check.Findings {
			observed := sanitizeSentence(f.Observed)
			k := key{sanitizeLine(f.ID, 80), sanitizeLine(string(f.Verdict), 10), observed}
			if severityOf(f.Verdict) == SeverityGood {
				k.observed = ""
			}
			// Find or create the group, and add the node to it.
			if _, had := at[k]; !had {
				at[k] = len(groups)
				groups = append(groups, CheckGroup{ID: k.id, Verdict: k.verdict, Tone: severityOf(f.Verdict), Observed: observed, Expected: sanitizeSentence(f.Expected), Hint: sanitizeSentence(f.Hint)})
			}
			g := &groups[at[k]]
			if g.Observed != observed {
				g.Observed = "" // differs between the nodes
			}
			if had := g.nodeIndices; len(had) == 0 || had[len(had)-1] != nodes[i].NodeIndex {
				g.nodeIndices = append(had, nodes[i].NodeIndex)
			}
		}
	}
	for i := range groups {
		groups[i].Count, groups[i].On = len(groups[i].nodeIndices), formatNodes(nodes, groups[i].nodeIndices)
	}
	slices.SortStableFunc(groups, func(a, b CheckGroup) int {
		return cmp.Or(cmp.Compare(verdictIndex(a.Verdict), verdictIndex(b.Verdict)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
	return groups
}

// splitChecks splits the check groups into those that did not pass, and those that passed or were
// skipped.
func (v *View) splitChecks() (wrong, passed []CheckGroup) {
	at := slices.IndexFunc(v.Checks, func(g CheckGroup) bool { return g.Tone == SeverityGood })
	if at < 0 {
		return v.Checks, nil
	}
	return v.Checks[:at], v.Checks[at:]
}

// formatNodes names nodes: all of them by their number, a few by their hosts, many by their
// indices.
func formatNodes(nodes []timeline.Node, nodeIndices []int) string {
	const few = 4
	switch {
	case len(nodeIndices) == len(nodes):
		return fmt.Sprintf("all %d", len(nodes))
	case len(nodeIndices) > few:
		return fmt.Sprintf("%d: nodes %s", len(nodeIndices), formatRanges(nodeIndices))
	}
	return strings.Join(mapSlice(nodeIndices, func(node int) string { return nodeName(node, sanitizeLine(nodes[node].Host, 80)) }), ", ")
}

// nodeName names a node. Hosts may be equal, so the name includes the node index.
func nodeName(node int, host string) string {
	if host == "" {
		return roles.NodeLabel(node, "")
	}
	return fmt.Sprintf("%s (node %d)", host, node)
}

// formatRanges formats a sorted list of indices as "0-3, 7", and cuts it if it is long.
func formatRanges(nodes []int) string {
	const most = 12
	parts := strings.Split(textutil.FormatRanges(nodes), ",")
	if len(parts) > most {
		parts = append(parts[:most], "…")
	}
	return strings.Join(parts, ", ")
}
