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

// part is a number of checks that look together.
type part interface {
	// Look takes one look. It heeds ctx, and a check that does not work is a finding. Where it takes long it tells soFar,
	// if it can, what it waits for.
	Look(ctx context.Context, soFar func([]check.Finding)) []check.Finding
	// Traits are what was seen at the last look that nodes are compared by.
	Traits() []check.Trait
}

// Checks are all checks of a node, and what they mean by the policy in force.
type Checks struct {
	Config
	parts []part
	// active are the checks that put the node to work; nil: none. They are run
	// once, where nothing has failed before, and told whether that is so.
	active func(ctx context.Context, fit bool) []check.Finding
	past   *past // nil: not looked at
	budget time.Duration
	gpus   *GPUs // nil where none is to be looked at
}

// Judge returns what findings mean by the policy in force.
func (c *Checks) Judge(findings []check.Finding) []check.Finding { return c.Policy.Judge(findings) }

// Longest is how long Await may take.
func (c *Checks) Longest() time.Duration { return c.budget }

// GPUs are those of the node; nil where none is to be looked at.
func (c *Checks) GPUs() *GPUs { return c.gpus }

// The pauses between two looks at what is waited for double, up to the last.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Await looks at the node until there is nothing to wait for any more, and returns what the last looks have shown. Each
// time that something is waited for, progress is told what there is; it may be nil. Where ctx ends, what was waited for
// is still a Wait.
func (c *Checks) Await(ctx context.Context, progress func(check.Report)) check.Report {
	began := time.Now()
	if progress == nil {
		progress = func(check.Report) {}
	}
	seen := make([][]check.Finding, len(c.parts))
	look := func(chosen func([]check.Finding) bool) {
		c.look(ctx, seen, chosen, func() { progress(c.report(began, c.Policy.Judge(slices.Concat(seen...)))) })
	}
	look(func([]check.Finding) bool { return true })
	// A look may take minutes, in which nothing is waited for but its answer.
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

// look has those parts look, side by side, whose last findings are chosen. It says when one of them has told what it
// waits for.
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

// waitedFor tells whether another look may show more.
func waitedFor(findings []check.Finding) bool {
	return slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Verdict == check.Wait })
}

// overdue returns the findings with a Fail in place of each Wait whose patience is over.
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

// putToWork adds what the past says, and the active checks. They are for a node that is well so far.
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
