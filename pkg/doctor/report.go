package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
)

// Finding is a line of the report, and the nodes that it is about where it is not about all.
type Finding struct {
	check.Finding
	Nodes []string `json:"nodes,omitempty"`
	inner bool     // one of a node's own checks
}

// ReportVersion is the version of the form that a Report has as JSON.
const ReportVersion = 1

// Report is what the doctor has to say.
type Report struct {
	Version  int           `json:"version"`
	Subject  string        `json:"subject"` // the nodes, in a few words
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"`
	Verdict  check.Verdict `json:"verdict"`
	Code     int           `json:"code"` // to end with
	Findings []Finding     `json:"findings"`
	Facts    []Facts       `json:"facts"`
}

// Text is the report as one table. What was skipped of a node's own checks is shown where it is to be verbose.
func (r Report) Text(style check.Style) string {
	shown := check.Report{Host: r.Subject, Took: r.Took, Verdict: r.Verdict}
	for _, f := range r.Findings {
		if f.Verdict != check.Skip || !f.inner || style.Verbose {
			shown.Findings = append(shown.Findings, f.Finding)
		}
	}
	style.Verbose = true
	return shown.Text(style)
}

// codeOf returns the exit code: that of the table of exit codes for a wrong launch and an unusable share, otherwise
// what monitoring expects of a verdict.
func (c scene) codeOf(verdict check.Verdict) int {
	switch {
	case c.Mistake != nil:
		return health.OutcomeOf(health.Launch).Code
	case c.ShareErr != nil, len(c.NotSeen) > 0:
		return health.OutcomeOf(health.Share).Code
	default:
		return check.Nagios(verdict)
	}
}

// judge returns the report on a launch.
func judge(c scene) Report {
	slices.SortFunc(c.Facts, func(a, b Facts) int { return a.Rank - b.Rank })
	var all []Finding
	for _, judge := range []func(scene) []Finding{
		judgeLaunch, judgeMeeting, judgeNames, judgeClocks, judgeTools, judgeAlike, judgeGPUs, judgeLogDir, judgeEach,
	} {
		all = append(all, judge(c)...)
	}
	all = c.underPolicy(all)
	plain := make([]check.Finding, len(all))
	for i, f := range all {
		plain[i] = f.Finding
	}
	report := Report{
		Version: ReportVersion, Subject: c.subject(), At: time.Now(), Took: c.Took,
		Verdict: check.Worst(plain), Findings: all, Facts: c.Facts,
	}
	report.Code = c.codeOf(report.Verdict)
	return report
}

// underPolicy applies the user's rules. What waits has waited enough.
func (c scene) underPolicy(all []Finding) []Finding {
	var kept []Finding
	for _, f := range all {
		if f.Verdict == check.Wait {
			f.Verdict = check.Fail
		}
		if judged := c.Policy.Judge([]check.Finding{f.Finding}); len(judged) == 1 {
			f.Finding = judged[0]
			kept = append(kept, f)
		}
	}
	return kept
}

func (c scene) subject() string {
	switch {
	case c.Alone != nil || c.Mistake != nil:
		return fmt.Sprintf("%s alone", c.host(0))
	case c.Size == 1:
		return c.host(0)
	default:
		return fmt.Sprintf("%d nodes", c.Size)
	}
}
