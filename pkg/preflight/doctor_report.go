package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// reportRow is one check. Its function adds findings to the [checkContext]: one if all is well, or
// one for each problem.
type reportRow struct {
	id       string
	evaluate func(*checkContext)
}

// checkContext collects the findings of one check.
type checkContext struct {
	*launchState
	check.FindingBuilder
	nodeFacts DoctorFacts // facts of the node that is checked; empty in a check of the launch
}

// runCheck runs the check and returns its findings. node is empty in a check of the launch as a
// whole.
func (r reportRow) runCheck(c *launchState, node DoctorFacts, nodes ...int) []check.Finding {
	p := checkContext{launchState: c, nodeFacts: node}
	p.Template = check.Finding{ID: r.id, NodeIndices: nodes}
	r.evaluate(&p)
	return p.Findings
}

// ListDoctorCheckIDs returns the ids of the doctor's own checks, without those that [NodeChecks]
// runs.
func ListDoctorCheckIDs() []string {
	return textutil.MapSlice(slices.Concat(launchRows, nodeRows), func(r reportRow) string { return r.id })
}

// DoctorReportVersion is the version of a [DoctorReport]'s JSON format.
const DoctorReportVersion = 1

// DoctorReport holds the results of an examination.
type DoctorReport struct {
	Version  int             `json:"version"`
	Subject  string          `json:"subject"` // description of the nodes: "4 nodes"
	At       time.Time       `json:"at"`
	Took     time.Duration   `json:"took_ns"`
	Verdict  check.Verdict   `json:"verdict"`
	Code     int             `json:"code"` // exit code of the program
	Findings []check.Finding `json:"findings"`
	Facts    []DoctorFacts   `json:"facts"`
}

// FormatText returns the report as a table. Node checks that were skipped are included only if
// verbose is set.
func (r DoctorReport) FormatText(verbose bool) string {
	shown := check.Report{Host: r.Subject, Took: r.Took, Verdict: r.Verdict}
	own := ListDoctorCheckIDs()
	for _, f := range r.Findings {
		if f.Verdict != check.Skip || verbose || slices.Contains(own, f.ID) {
			shown.Findings = append(shown.Findings, f)
		}
	}
	return shown.FormatText(true)
}

// buildDoctorReport runs all checks on the facts and returns the report. took is the duration of
// the examination.
func buildDoctorReport(c *launchState, took time.Duration) DoctorReport {
	slices.SortFunc(c.Facts,
		func(a, b DoctorFacts) int { return cmp.Compare(a.NodeIndex, b.NodeIndex) })
	var all, each []check.Finding
	for _, r := range launchRows {
		all = append(all, r.runCheck(c, DoctorFacts{})...)
	}
	for _, f := range c.Facts {
		for _, r := range nodeRows {
			each = append(each, r.runCheck(c, f, f.NodeIndex)...)
		}
	}
	for _, f := range c.Facts {
		if f.Report != nil {
			each = append(each, f.Report.FindingsOn(f.NodeIndex)...)
		}
	}
	all = append(all, c.mergeFindings(each)...)
	for i, f := range all {
		for _, node := range f.NodeIndices {
			all[i].Nodes = append(all[i].Nodes, c.hostName(node))
		}
		if f.Verdict == check.Wait {
			all[i].Verdict = check.Fail // there is no further wait
		}
	}
	all = c.Policy.Apply(all)
	report := DoctorReport{
		Version: DoctorReportVersion, Subject: c.subjectText(), At: time.Now(), Took: took,
		Verdict: check.WorstVerdict(all), Findings: all, Facts: c.Facts,
	}
	report.Code = c.exitCodeFor(report.Verdict)
	return report
}

// exitCodeFor returns the exit code. For a wrong launch or an unusable shared file system it is the
// code of a run; otherwise it is the code that Nagios expects for the verdict.
func (c *launchState) exitCodeFor(verdict check.Verdict) int {
	switch {
	case c.Mistake != nil:
		return health.OutcomeOfKind(health.Launch).Code
	case c.ShareErr != nil, len(c.NotJoined) > 0:
		return health.OutcomeOfKind(health.ShareUnusable).Code
	default:
		return check.NagiosExitCode(verdict)
	}
}

// subjectText returns the description of the nodes that were examined.
func (c *launchState) subjectText() string {
	switch {
	case c.hasPeers():
		return fmt.Sprintf("%d nodes", c.Identity.Size)
	case c.AloneReason != nil || c.Mistake != nil:
		return c.hostName(0) + " only"
	default:
		return c.hostName(0)
	}
}

// launchState holds everything that is known about a launch. The checks read it.
type launchState struct {
	ExaminedLaunch
	// ShareErr is the reason why the nodes could not use the log directory; nil if they could.
	ShareErr     error
	Waited       time.Duration         // time spent waiting for all nodes to join
	NotJoined    []int                 // nodes that have not joined
	WithoutFacts []int                 // nodes that have joined but sent no facts
	Facts        []DoctorFacts         // facts of the nodes that have sent them, sorted by node index
	RoundTrips   map[int]time.Duration // round-trip times by node index
}

// hasPeers reports whether the launch has other nodes.
func (l ExaminedLaunch) hasPeers() bool {
	return l.AloneReason == nil && l.Mistake == nil && l.Identity.Size > 1
}

// onSeparateHosts reports whether the nodes should be different machines.
func (l ExaminedLaunch) onSeparateHosts() bool {
	return l.hasPeers() && l.Identity.Launcher != launcher.LauncherLocal
}

// hostOf returns the host name of a node, or an empty string if it is unknown.
func (c *launchState) hostOf(node int) string {
	at := slices.IndexFunc(c.Facts, func(f DoctorFacts) bool { return f.NodeIndex == node })
	switch {
	case at >= 0:
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
func (c *launchState) groupNodesBy(of func(DoctorFacts) string) []check.ValueGroup {
	nodes := make(map[string][]int)
	for _, f := range c.Facts {
		if value := of(f); value != "" {
			nodes[value] = append(nodes[value], f.NodeIndex)
		}
	}
	return check.GroupByValue(nodes)
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
	f.Observed = textutil.JoinLimited(parts, maxListedTexts, "; ")
	hints := check.GroupFindings(same, func(f check.Finding) string { return f.Hint })
	if len(hints) > 1 {
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
