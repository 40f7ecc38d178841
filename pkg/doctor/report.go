package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
)

// row is one check: a line of the report, or several where not all is well.
type row struct {
	id    string
	judge func(*page)
}

// page is where one check writes its lines of the report.
type page struct {
	*scene
	check.Sheet
	node Facts // of the node that is judged, in a check of each node
}

// lines are what the check has to say; node is none where it is of the launch as a whole.
func (r row) lines(c *scene, node Facts, ranks ...int) []check.Finding {
	p := page{scene: c, Sheet: check.Sheet{Each: check.Finding{ID: r.id, Ranks: ranks}}, node: node}
	r.judge(&p)
	return p.Found
}

// IDs are those of the report's lines that are no checks of a node's own.
func IDs() (ids []string) {
	for _, r := range slices.Concat(ofLaunch, ofNode) {
		ids = append(ids, r.id)
	}
	return ids
}

// ReportVersion is the version of the form that a Report has as JSON.
const ReportVersion = 1

// Report is what the doctor has to say.
type Report struct {
	Version  int             `json:"version"`
	Subject  string          `json:"subject"` // the nodes, in a few words
	At       time.Time       `json:"at"`
	Took     time.Duration   `json:"took_ns"`
	Verdict  check.Verdict   `json:"verdict"`
	Code     int             `json:"code"` // to end with
	Findings []check.Finding `json:"findings"`
	Facts    []Facts         `json:"facts"`
}

// Text is the report as one table. What was skipped of a node's own checks is shown where it is to be verbose.
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

// judge returns the report on a launch.
func judge(c *scene) Report {
	slices.SortFunc(c.Facts, func(a, b Facts) int { return cmp.Compare(a.Rank, b.Rank) })
	var all, each []check.Finding
	for _, r := range ofLaunch {
		all = append(all, r.lines(c, Facts{})...)
	}
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
	all = append(all, c.merge(each)...)
	for i, f := range all {
		if all[i].Nodes = c.names(f.Ranks); f.Verdict == check.Wait {
			all[i].Verdict = check.Fail // it has waited enough
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

// codeOf returns the exit code: that of the table of exit codes for a wrong launch and an unusable share, otherwise
// what monitoring expects of a verdict.
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
