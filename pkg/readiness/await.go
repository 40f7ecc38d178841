package readiness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/pause"
)

// part is a group of checks that run together.
type part interface {
	// Look runs the checks once. It stops early if ctx ends. A check that does not work yields a
	// finding. If the checks take long, it may call soFar with findings that say what it waits for.
	Look(ctx context.Context, soFar func([]check.Finding)) []check.Finding
	// Traits returns the attributes by which nodes are compared, as of the last call of [part.Look].
	Traits() []check.Trait
}

// Checks holds all checks of a node and the policy for their findings.
type Checks struct {
	Config
	parts []part
	// active runs the active checks, which put the node to work; nil: there are none. It is called
	// once, at the end. fit reports whether no other check has failed.
	active func(ctx context.Context, fit bool) []check.Finding
	past   *past         // nil: the device history is not checked
	budget time.Duration // maximum duration of [Checks.Await]
	gpus   *GPUs         // nil if GPUs are not checked
}

// Judge returns the findings with the verdicts that the policy assigns.
func (c *Checks) Judge(findings []check.Finding) []check.Finding { return c.Policy.Judge(findings) }

// Longest returns the maximum duration of [Checks.Await].
func (c *Checks) Longest() time.Duration { return c.budget }

// GPUs returns the node's GPUs, or nil if GPUs are not checked.
func (c *Checks) GPUs() *GPUs { return c.gpus }

// The pauses between two rounds of checks, which double from firstPause to lastPause.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Await repeats the checks until none of them returns a Wait, and returns the report of the last
// results. It calls progress, unless that is nil, with an intermediate report each time that
// something is not ready. If ctx ends first, the report still contains the Wait findings.
func (c *Checks) Await(ctx context.Context, progress func(check.Report)) check.Report {
	began := time.Now()
	if progress == nil {
		progress = func(check.Report) {}
	}
	seen := make([][]check.Finding, len(c.parts))
	// look runs the chosen parts and reports intermediate findings.
	look := func(chosen func([]check.Finding) bool) {
		c.look(ctx, seen, chosen, func() { progress(c.report(began, c.Policy.Judge(slices.Concat(seen...)))) })
	}
	look(func([]check.Finding) bool { return true })
	// The first round itself may take minutes. The timeout for Wait findings starts after it.
	first := time.Now()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		waited := time.Since(first)
		report := c.report(began, c.Policy.Judge(overdue(slices.Concat(seen...), waited, c.Timeout)))
		if report.Verdict != check.Wait || ctx.Err() != nil {
			return c.putToWork(ctx, began, report)
		}
		progress(report)
		if !pause.For(ctx, min(wait, max(0, c.Timeout-waited))) {
			return report
		}
		look(waitedFor)
	}
}

// look runs those parts concurrently for which chosen returns true on their last findings. It
// stores the new findings in seen, also the intermediate ones of a part that is still running;
// after each of these it calls the callback. The calls are serialised.
func (c *Checks) look(ctx context.Context, seen [][]check.Finding, chosen func([]check.Finding) bool, told func()) {
	var mu sync.Mutex // guards seen
	var looks sync.WaitGroup
	for i, part := range c.parts {
		if !chosen(seen[i]) {
			continue
		}
		looks.Go(func() {
			found := part.Look(ctx, func(soFar []check.Finding) {
				mu.Lock()
				defer mu.Unlock()
				seen[i] = soFar
				told()
			})
			mu.Lock()
			defer mu.Unlock()
			seen[i] = found
		})
	}
	looks.Wait()
}

// waitedFor reports whether a finding is a Wait, so that running the check again may change it.
func waitedFor(findings []check.Finding) bool {
	return slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Verdict == check.Wait })
}

// overdue turns each Wait that has reached its time limit into a Fail. waited is the time since the
// first round, and within is the overall limit. It modifies and returns findings.
func overdue(findings []check.Finding, waited, within time.Duration) []check.Finding {
	for i, f := range findings {
		patience := within
		if f.Patience > 0 {
			patience = min(f.Patience, within)
		}
		if f.Verdict == check.Wait && waited >= patience {
			findings[i].Verdict = check.Fail
			findings[i].Observed += fmt.Sprintf(" (still, after %s)", waited.Round(time.Second/10))
		}
	}
	return findings
}

// putToWork adds the check of the device history and the active checks to a report. Active checks
// run only on a node that has not failed another check.
func (c *Checks) putToWork(ctx context.Context, began time.Time, report check.Report) check.Report {
	add := func(found []check.Finding) {
		report = c.report(began, append(report.Findings, c.Policy.Judge(found)...))
	}
	if c.past != nil && ctx.Err() == nil {
		add(c.past.look(ctx, report.Findings))
	}
	if c.active != nil && ctx.Err() == nil {
		add(c.active(ctx, report.Verdict != check.Fail))
	}
	return report
}

// report builds the report of the findings, with the attributes of all parts.
func (c *Checks) report(began time.Time, findings []check.Finding) check.Report {
	report := check.Report{
		Version: check.ReportVersion, Host: c.Host, Rank: c.Rank, At: time.Now(), Took: time.Since(began),
		Verdict: check.Worst(findings), Findings: findings, Traits: []check.Trait{{ID: check.Bringupd, Value: c.Program}},
	}
	for _, part := range c.parts {
		report.Traits = append(report.Traits, part.Traits()...)
	}
	slices.SortFunc(report.Traits, func(a, b check.Trait) int { return strings.Compare(a.ID, b.ID) })
	return report
}
