package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/check"
)

// nodeCheck is a group of checks that run together.
type nodeCheck interface {
	// Inspect runs the checks once. It stops early if ctx ends. A check that does not work yields a
	// finding. If the checks take long, it may call soFar with findings that say what it waits for.
	Inspect(ctx context.Context, soFar func([]check.Finding)) []check.Finding
	// Attributes returns the attributes by which nodes are compared, as of the last call of
	// [nodeCheck.Inspect].
	Attributes() []check.Attribute
}

// NodeChecks holds all checks of a node and the policy for their findings.
type NodeChecks struct {
	NodeConfig
	nodeChecks []nodeCheck
	// activeChecks runs the active checks, which put the node to work; nil: there are none. It is
	// called once, at the end. fit reports whether no other check has failed.
	activeChecks func(ctx context.Context, fit bool) []check.Finding
	maxDuration  time.Duration // maximum duration of [NodeChecks.AwaitReady]
	gpus         *GPUs         // nil if GPUs are not checked
}

// ApplyPolicy returns the findings with the verdicts that the policy assigns.
func (c *NodeChecks) ApplyPolicy(findings []check.Finding) []check.Finding {
	return c.Policy.Apply(findings)
}

// MaxDuration returns the maximum duration of [NodeChecks.AwaitReady].
func (c *NodeChecks) MaxDuration() time.Duration { return c.maxDuration }

// GPUs returns the node's GPUs, or nil if GPUs are not checked.
func (c *NodeChecks) GPUs() *GPUs { return c.gpus }

// The pauses between two rounds of checks, which double from minPause to maxPause.
const (
	minPause = 250 * time.Millisecond
	maxPause = 2 * time.Second
)

// AwaitReady repeats the checks until none of them returns a Wait, and returns the report of the
// last results. It calls progress, unless that is nil, with an intermediate report each time that
// something is not ready. If ctx ends first, the report still contains the Wait findings.
func (c *NodeChecks) AwaitReady(ctx context.Context, progress func(check.Report)) check.Report {
	began := time.Now()
	if progress == nil {
		progress = func(check.Report) {}
	}
	seen := make([][]check.Finding, len(c.nodeChecks))
	// look runs the chosen parts and reports intermediate findings.
	look := func(chosen func([]check.Finding) bool) {
		c.runChecks(ctx, seen, chosen, func() { progress(c.newReport(began, c.Policy.Apply(slices.Concat(seen...)))) })
	}
	look(func([]check.Finding) bool { return true })
	// The first round itself may take minutes. The timeout for Wait findings starts after it.
	first := time.Now()
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		waited := time.Since(first)
		report := c.newReport(began, c.Policy.Apply(failOverdue(slices.Concat(seen...), waited, c.Timeout)))
		if report.Verdict != check.Wait || ctx.Err() != nil {
			return c.runFinalChecks(ctx, began, report)
		}
		progress(report)
		if !ctxutil.SleepContext(ctx, min(wait, max(0, c.Timeout-waited))) {
			return report
		}
		look(hasWaiting)
	}
}

// runChecks runs those parts concurrently for which chosen returns true on their last findings. It
// stores the new findings in seen, also the intermediate ones of a part that is still running;
// after each of these it calls the callback. The calls are serialised.
func (c *NodeChecks) runChecks(ctx context.Context, seen [][]check.Finding,
	chosen func([]check.Finding) bool, changed func()) {
	var mu sync.Mutex // guards seen
	var looks sync.WaitGroup
	for i, part := range c.nodeChecks {
		if !chosen(seen[i]) {
			continue
		}
		looks.Go(func() {
			found := part.Inspect(ctx, func(soFar []check.Finding) {
				mu.Lock()
				defer mu.Unlock()
				seen[i] = soFar
				changed()
			})
			mu.Lock()
			defer mu.Unlock()
			seen[i] = found
		})
	}
	looks.Wait()
}

// hasWaiting reports whether a finding is a Wait, so that running the check again may change it.
func hasWaiting(findings []check.Finding) bool {
	return slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Verdict == check.Wait })
}

// failOverdue turns each Wait that has reached its time limit into a Fail. waited is the time since
// the first round, and within is the overall limit. It modifies and returns findings.
func failOverdue(findings []check.Finding, waited, within time.Duration) []check.Finding {
	for i, f := range findings {
		limit := within
		if f.MaxWait > 0 {
			limit = min(f.MaxWait, within)
		}
		if f.Verdict == check.Wait && waited >= limit {
			findings[i].Verdict = check.Fail
			findings[i].Observed += fmt.Sprintf(" (still after %s)", waited.Round(time.Second/10))
		}
	}
	return findings
}

// runFinalChecks adds the active checks to a report. They run only on a node that has not failed
// another check.
func (c *NodeChecks) runFinalChecks(
	ctx context.Context, began time.Time, report check.Report,
) check.Report {
	if c.activeChecks == nil || ctx.Err() != nil {
		return report
	}
	found := c.activeChecks(ctx, report.Verdict != check.Fail)
	return c.newReport(began, append(report.Findings, c.Policy.Apply(found)...))
}

// newReport builds the report of the findings, with the attributes of all parts.
func (c *NodeChecks) newReport(began time.Time, findings []check.Finding) check.Report {
	report := check.Report{
		Version: check.ReportVersion, Host: c.Host, NodeIndex: c.NodeIndex, At: time.Now(), Took: time.Since(began),
		Verdict: check.WorstVerdict(findings), Findings: findings,
		Attributes: []check.Attribute{{ID: check.AttrBringupd, Value: c.Program}},
	}
	for _, part := range c.nodeChecks {
		report.Attributes = append(report.Attributes, part.Attributes()...)
	}
	slices.SortFunc(report.Attributes, func(a, b check.Attribute) int { return strings.Compare(a.ID, b.ID) })
	return report
}
