package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
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
	var all []check.Finding
	for i := range nodes {
		if nodes[i].Check != nil {
			all = append(all, nodes[i].Check.FindingsOn(nodes[i].NodeIndex)...)
		}
	}
	type key struct{ id, verdict, observed string }
	groups := []CheckGroup{}
	for _, same := range check.GroupFindings(all, func(f check.Finding) key {
		k := key{sanitizeLine(f.ID, maxNameLength), sanitizeLine(string(f.Verdict), 10), sanitizeSentence(f.Observed)}
		if severityOf(f.Verdict) == SeverityGood {
			k.observed = ""
		}
		return k
	}) {
		f, on := same[0], check.NodesOf(same)
		g := CheckGroup{
			ID: sanitizeLine(f.ID, maxNameLength), Verdict: sanitizeLine(string(f.Verdict), 10), Tone: severityOf(f.Verdict),
			Observed: sanitizeSentence(f.Observed), Expected: sanitizeSentence(f.Expected), Hint: sanitizeSentence(f.Hint),
			Count: len(on), On: formatNodes(nodes, on),
		}
		if slices.ContainsFunc(same, func(o check.Finding) bool { return sanitizeSentence(o.Observed) != g.Observed }) {
			g.Observed = "" // differs between the nodes
		}
		groups = append(groups, g)
	}
	slices.SortStableFunc(groups, func(a, b CheckGroup) int {
		return cmp.Or(cmp.Compare(verdictIndex(a.Verdict), verdictIndex(b.Verdict)),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
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
	return strings.Join(mapSlice(nodeIndices, func(node int) string {
		return nodeName(node, sanitizeLine(nodes[node].Host, maxNameLength))
	}), ", ")
}

// nodeName names a node. Hosts may be equal, so the name includes the node index.
func nodeName(node int, host string) string {
	if host == "" {
		return launcher.NodeLabel(node, "")
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
