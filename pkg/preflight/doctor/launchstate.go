package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// launchState holds everything that is known about a launch. The checks read it.
type launchState struct {
	Target
	// ShareErr is the reason why the nodes could not use the log directory; nil if they could.
	ShareErr     error
	Waited       time.Duration         // time spent waiting for all nodes to join
	NotJoined    []int                 // nodes that have not joined
	WithoutFacts []int                 // nodes that have joined but sent no facts
	Facts        []Facts               // facts of the nodes that have sent them, sorted by node index
	RoundTrips   map[int]time.Duration // round-trip times by node index
	Took         time.Duration         // duration of the examination
}

// hasPeers reports whether the launch has other nodes.
func (l Target) hasPeers() bool {
	return l.AloneReason == nil && l.Mistake == nil && l.Identity.Size > 1
}

// onSeparateHosts reports whether the nodes should be different machines.
func (l Target) onSeparateHosts() bool {
	return l.hasPeers() && l.Identity.Launcher != launcher.LauncherLocal
}

// hostOf returns the host name of a node, or an empty string if it is unknown.
func (c *launchState) hostOf(node int) string {
	at, known := slices.BinarySearchFunc(c.Facts, node, func(f Facts, node int) int { return cmp.Compare(f.NodeIndex, node) })
	switch {
	case known:
		return cmp.Or(c.Facts[at].Host, c.Facts[at].Hostname)
	case node < len(c.Identity.Hosts):
		return c.Identity.Hosts[node]
	default:
		return ""
	}
}

// hostName returns the host name of a node, or "node N" if it is unknown.
func (c *launchState) hostName(node int) string {
	return cmp.Or(c.hostOf(node), launcher.NodeLabel(node, ""))
}

// formatHosts formats a list of nodes for people.
func (c *launchState) formatHosts(nodes []int) string {
	return c.Identity.FormatNodes(nodes, c.hostOf)
}

// hostNames returns the host names of the nodes.
func (c *launchState) hostNames(nodes []int) (names []string) {
	for _, node := range nodes {
		names = append(names, c.hostName(node))
	}
	return names
}

// onNodesText returns text that names the nodes of a finding: " on n[0,2]", or " (all 4 nodes)" if
// alone is true and the finding is about all nodes. It is empty if there is only one node.
func (c *launchState) onNodesText(nodes []int, alone bool) string {
	switch {
	case len(c.Facts) < 2:
		return ""
	case alone && len(nodes) == len(c.Facts):
		return fmt.Sprintf(" (all %d nodes)", len(nodes))
	default:
		return " on " + c.formatHosts(nodes)
	}
}

// groupNodesBy groups the nodes by the value that the parameter returns for their facts, the most
// common value first. It leaves out empty values.
func (c *launchState) groupNodesBy(of func(Facts) string) []check.ValueGroup {
	nodes := make(map[string][]int)
	for _, f := range c.Facts {
		if value := of(f); value != "" {
			nodes[value] = append(nodes[value], f.NodeIndex)
		}
	}
	return check.GroupByValue(nodes)
}

// listValues lists values with their nodes, and returns all these nodes.
func (c *launchState) listValues(values []check.ValueGroup) (text string, nodes []int) {
	var parts []string
	for _, v := range values {
		parts, nodes = append(parts, v.Value+" on "+c.formatHosts(v.Nodes)), append(nodes, v.Nodes...)
	}
	slices.Sort(nodes)
	return strings.Join(parts, "; "), nodes
}

// maxListedTexts is the maximum number of different texts in one finding.
const maxListedTexts = 3

// mergeFindings combines the findings of several nodes: it returns one finding for each check and
// verdict. It leaves out Pass and Skip if another node has a worse verdict, and Skip if another
// node has passed.
func (c *launchState) mergeFindings(all []check.Finding) (lines []check.Finding) {
	for _, group := range check.GroupFindings(all, func(f check.Finding) string { return f.ID }) {
		wrong := slices.ContainsFunc(group, func(f check.Finding) bool { return !f.IsQuiet() })
		passed := slices.ContainsFunc(group, func(f check.Finding) bool { return f.Verdict == check.Pass })
		for _, same := range check.GroupFindings(group, func(f check.Finding) check.Verdict { return f.Verdict }) {
			if f := same[0]; f.IsQuiet() && wrong || f.Verdict == check.Skip && passed {
				continue
			}
			lines = append(lines, c.mergeGroup(same))
		}
	}
	return lines
}

// maxNodesText is the maximum length of the nodes' texts in one finding, in characters.
const maxNodesText = 220

// mergeGroup combines findings of several nodes that have the same check and verdict into one.
func (c *launchState) mergeGroup(same []check.Finding) check.Finding {
	f := same[0]
	f.Device, f.NodeIndices = nil, nil
	// Group the nodes by text, the most common text first.
	texts := check.GroupFindings(same, findingText)
	slices.SortStableFunc(texts, func(a, b []check.Finding) int { return cmp.Compare(len(b), len(a)) })
	var parts []string
	for _, group := range texts {
		who := check.NodesOf(group)
		switch text := findingText(group[0]); {
		case f.IsQuiet():
			parts = append(parts, text+c.onNodesText(who, len(texts) == 1))
		case len(c.Facts) > 1 && len(who) < len(c.Facts):
			// The nodes come first, because the rest may be cut off.
			parts = append(parts, c.formatHosts(who)+": "+textutil.TruncateText(text, maxNodesText/len(texts)))
		default:
			parts = append(parts, textutil.TruncateText(text, maxNodesText)+c.onNodesText(who, true))
		}
	}
	// Combine the texts and the hints.
	f.Observed = textutil.JoinLimited(parts, maxListedTexts, "; ")
	if hints := check.GroupFindings(same, func(f check.Finding) string { return f.Hint }); len(hints) > 1 {
		f.Hint = c.mergeHints(hints)
	}
	if !f.IsQuiet() {
		f.NodeIndices = check.NodesOf(same)
	}
	return f
}

// mergeHints combines hints that differ between nodes: "on n[0,2]: …; on n1: …".
func (c *launchState) mergeHints(groups [][]check.Finding) string {
	var parts []string
	for _, group := range groups[:min(len(groups), maxListedTexts)] {
		parts = append(parts, "on "+c.formatHosts(check.NodesOf(group))+": "+group[0].Hint)
	}
	if len(groups) > maxListedTexts {
		parts = append(parts, "and more")
	}
	return strings.Join(parts, "; ")
}

// findingText returns the text of a node's finding, with its device if it has one.
func findingText(f check.Finding) string {
	if f.Device == nil {
		return f.Observed
	}
	return f.Device.String() + ": " + f.Observed
}
