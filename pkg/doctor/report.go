package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
)

// row is one check. Its function adds findings to the [page]: one if all is well, or one for each
// problem.
type row struct {
	id    string
	judge func(*page)
}

// page collects the findings of one check.
type page struct {
	*scene
	check.Sheet
	node Facts // facts of the node that is checked; empty in a check of the launch
}

// lines runs the check and returns its findings. node is empty in a check of the launch as a whole.
func (r row) lines(c *scene, node Facts, ranks ...int) []check.Finding {
	p := page{scene: c, Sheet: check.Sheet{Each: check.Finding{ID: r.id, Ranks: ranks}}, node: node}
	r.judge(&p)
	return p.Found
}

// IDs returns the ids of the doctor's own checks, without the node checks of pkg/check.
func IDs() (ids []string) {
	for _, r := range slices.Concat(ofLaunch, ofNode) {
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

// Text returns the report as a table. Node checks that were skipped are included only if the style
// is verbose.
func (r Report) Text(style check.Style) string {
	shown, own := check.Report{Host: r.Subject, Took: r.Took, Verdict: r.Verdict}, IDs()
	for _, f := range r.Findings {
		if f.Verdict != check.Skip || style.Verbose || slices.Contains(own, f.ID) {
			shown.Findings = append(shown.Findings, f)
		}
	}
	style.Verbose = true
	return shown.Text(style)
}

// judge runs all checks on the facts and returns the report.
func judge(c *scene) Report {
	slices.SortFunc(c.Facts, func(a, b Facts) int { return cmp.Compare(a.Rank, b.Rank) })
	// Check the launch as a whole.
	var all, each []check.Finding
	for _, r := range ofLaunch {
		all = append(all, r.lines(c, Facts{})...)
	}
	// Check each node by itself, and add the findings of its own checks.
	for _, f := range c.Facts {
		for _, r := range ofNode {
			each = append(each, r.lines(c, f, f.Rank)...)
		}
	}
	for _, f := range c.Facts {
		if f.Report == nil {
			continue
		}
		for _, finding := range f.Report.Findings {
			finding.Ranks = []int{f.Rank}
			each = append(each, finding)
		}
	}
	// Merge equal findings of several nodes, and apply the policy.
	all = append(all, c.merge(each)...)
	for i, f := range all {
		if all[i].Nodes = c.names(f.Ranks); f.Verdict == check.Wait {
			all[i].Verdict = check.Fail // there is no further wait
		}
	}
	all = c.Policy.Judge(all)
	report := Report{
		Version: ReportVersion, Subject: c.subject(), At: time.Now(), Took: c.Took,
		Verdict: check.Worst(all), Findings: all, Facts: c.Facts,
	}
	report.Code = c.codeOf(report.Verdict)
	return report
}

// codeOf returns the exit code. For a wrong launch or an unusable shared file system it is the code
// of a run; otherwise it is the code that Nagios expects for the verdict.
func (c *scene) codeOf(verdict check.Verdict) int {
	switch {
	case c.Mistake != nil:
		return health.OutcomeOf(health.Launch).Code
	case c.ShareErr != nil, len(c.NotSeen) > 0:
		return health.OutcomeOf(health.Share).Code
	default:
		return check.Nagios(verdict)
	}
}

// subject returns the description of the nodes that were examined.
func (c *scene) subject() string {
	switch {
	case c.several():
		return fmt.Sprintf("%d nodes", c.Identity.Size)
	case c.Alone != nil || c.Mistake != nil:
		return c.host(0) + " alone"
	default:
		return c.host(0)
	}
}
