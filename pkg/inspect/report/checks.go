package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

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

// groupChecks groups equal findings of the nodes' checks, the worst first. Findings that passed
// form one group per check, even if the observed values differ.
func (l viewBuilder) groupChecks() []CheckGroup {
	nodes := l.run.Nodes
	var all []check.Finding
	for i := range nodes {
		if nodes[i].Check != nil {
			all = append(all, nodes[i].Check.FindingsOn(nodes[i].NodeIndex)...)
		}
	}
	type key struct{ id, verdict, observed string }
	groups := []CheckGroup{}
	for _, same := range check.GroupFindings(all, func(f check.Finding) key {
		k := key{f.ID, string(f.Verdict), f.Observed}
		if severityOf(f.Verdict) == SeverityGood {
			k.observed = ""
		}
		return k
	}) {
		f, on := same[0], check.NodesOf(same)
		g := CheckGroup{
			ID: f.ID, Verdict: string(f.Verdict), Tone: severityOf(f.Verdict), Observed: f.Observed,
			Expected: f.Expected, Hint: f.Hint, Count: len(on), On: l.formatNodes(on),
		}
		if slices.ContainsFunc(same, func(o check.Finding) bool { return o.Observed != g.Observed }) {
			g.Observed = "" // differs between the nodes
		}
		groups = append(groups, g)
	}
	slices.SortStableFunc(groups, func(a, b CheckGroup) int {
		at := func(g CheckGroup) int { return slices.Index(verdictOrder, check.Verdict(g.Verdict)) }
		return cmp.Or(at(a)-at(b), cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
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

// maxNodeList is the maximum length of a list of nodes in characters: it has no spaces, at which a
// line of the page could break.
const maxNodeList = 40

// formatNodes names nodes, and their number if the list is cut.
func (l viewBuilder) formatNodes(nodes []int) string {
	size := l.run.Size()
	if len(nodes) == size {
		return fmt.Sprintf("all %d", size)
	}
	list := launcher.Identity{Size: size}.FormatNodes(nodes, l.hostName)
	if short := textutil.TruncateText(list, maxNodeList); short != list {
		return fmt.Sprintf("%d: %s", len(nodes), short)
	}
	return list
}

// nodeName names a node. Hosts may be equal, so the name includes the node index.
func nodeName(node int, host string) string {
	if host == "" {
		return launcher.NodeLabel(node, "")
	}
	return fmt.Sprintf("%s (node %d)", host, node)
}
