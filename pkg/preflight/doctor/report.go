package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
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
	nodeFacts Facts // facts of the node that is checked; empty in a check of the launch
}

// runCheck runs the check and returns its findings. node is empty in a check of the launch as a
// whole.
func (r reportRow) runCheck(c *launchState, node Facts, nodes ...int) []check.Finding {
	p := checkContext{launchState: c, FindingBuilder: check.FindingBuilder{Template: check.Finding{ID: r.id, NodeIndices: nodes}}, nodeFacts: node}
	r.evaluate(&p)
	return p.Findings
}

// ListIDs returns the ids of the doctor's own checks, without the node checks of pkg/check.
func ListIDs() (ids []string) {
	for _, r := range slices.Concat(launchChecks, nodeChecks) {
		ids = append(ids, r.id)
	}
	return ids
}

// ReportVersion is the version of a Report's JSON format.
const ReportVersion = 1

// Report holds the results of an examination.
type Report struct {
	Version  int             `json:"version"`
	Subject  string          `json:"subject"` // description of the nodes: "4 nodes"
	At       time.Time       `json:"at"`
	Took     time.Duration   `json:"took_ns"`
	Verdict  check.Verdict   `json:"verdict"`
	Code     int             `json:"code"` // exit code of the program
	Findings []check.Finding `json:"findings"`
	Facts    []Facts         `json:"facts"`
}

// FormatText returns the report as a table. Node checks that were skipped are included only if the
// style is verbose.
func (r Report) FormatText(style check.TextStyle) string {
	shown, own := check.Report{Host: r.Subject, Took: r.Took, Verdict: r.Verdict}, ListIDs()
	for _, f := range r.Findings {
		if f.Verdict != check.Skip || style.Verbose || slices.Contains(own, f.ID) {
			shown.Findings = append(shown.Findings, f)
		}
	}
	style.Verbose = true
	return shown.FormatText(style)
}

// buildReport runs all checks on the facts and returns the report.
func buildReport(c *launchState) Report {
	slices.SortFunc(c.Facts, func(a, b Facts) int { return cmp.Compare(a.NodeIndex, b.NodeIndex) })
	// Check the launch as a whole.
	var all, each []check.Finding
	for _, r := range launchChecks {
		all = append(all, r.runCheck(c, Facts{})...)
	}
	// Check each node by itself, and add the findings of its own checks.
	for _, f := range c.Facts {
		for _, r := range nodeChecks {
			each = append(each, r.runCheck(c, f, f.NodeIndex)...)
		}
	}
	for _, f := range c.Facts {
		if f.Report != nil {
			each = append(each, f.Report.FindingsOn(f.NodeIndex)...)
		}
	}
	// Merge equal findings of several nodes, and apply the policy.
	all = append(all, c.mergeFindings(each)...)
	for i, f := range all {
		if all[i].Nodes = c.hostNames(f.NodeIndices); f.Verdict == check.Wait {
			all[i].Verdict = check.Fail // there is no further wait
		}
	}
	all = c.Policy.Apply(all)
	report := Report{
		Version: ReportVersion, Subject: c.subjectText(), At: time.Now(), Took: c.Took,
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
