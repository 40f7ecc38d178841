package readiness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/pause"
)

// Part is a number of checks that look together.
type Part interface {
	// Look takes one look. It heeds ctx, and a check that does not work is a
	// finding.
	Look(ctx context.Context) []check.Finding
	// Traits are what was seen at the last look that nodes are compared by.
	Traits() []check.Trait
}

// Node is what is to be looked at, and what it means.
type Node struct {
	Host   string
	Rank   int // -1 where there is no run
	Parts  []Part
	Policy check.Policy
	// Active are the checks that put the node to work; nil: none. They are run
	// once, where nothing has failed before, and told whether that is so.
	Active func(ctx context.Context, fit bool) []check.Finding
	// Within is how long may be waited for what is not ready yet.
	Within time.Duration
	// Always are the traits that need no look.
	Always []check.Trait
}

// The pauses between two looks at what is waited for double, up to the last.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Await looks at the node until there is nothing to wait for any more, and
// returns what the last looks have shown. Each time that something is waited
// for, progress is told what there is; it may be nil. Where ctx ends, what was
// waited for is still a Wait.
func (n Node) Await(ctx context.Context, progress func(check.Report)) check.Report {
	began := time.Now()
	seen := make([][]check.Finding, len(n.Parts))
	n.look(ctx, seen, func([]check.Finding) bool { return true })
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		waited := time.Since(began)
		report := n.report(began, n.Policy.Judge(overdue(slices.Concat(seen...), waited, n.Within)))
		if report.Verdict != check.Wait || ctx.Err() != nil {
			return n.active(ctx, began, report)
		}
		if progress != nil {
			progress(report)
		}
		if !pause.For(ctx, min(wait, max(0, n.Within-waited))) {
			return report
		}
		n.look(ctx, seen, waits)
	}
}

// look has those parts look whose findings are chosen, side by side.
func (n Node) look(ctx context.Context, seen [][]check.Finding, chosen func([]check.Finding) bool) {
	looks := make([]chan []check.Finding, len(n.Parts))
	for i, part := range n.Parts {
		if !chosen(seen[i]) {
			continue
		}
		looks[i] = make(chan []check.Finding, 1)
		go func() { looks[i] <- part.Look(ctx) }()
	}
	for i, look := range looks {
		if look != nil {
			seen[i] = <-look
		}
	}
}

func waits(findings []check.Finding) bool {
	return slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Verdict == check.Wait })
}

// overdue returns the findings with a Fail for each Wait that has had its time.
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

// active adds what the active checks say. They are for a node that is well so far.
func (n Node) active(ctx context.Context, began time.Time, report check.Report) check.Report {
	if n.Active == nil || ctx.Err() != nil {
		return report
	}
	fit := report.Verdict != check.Fail
	return n.report(began, append(report.Findings, n.Policy.Judge(n.Active(ctx, fit))...))
}

func (n Node) report(began time.Time, findings []check.Finding) check.Report {
	report := check.Report{
		Version: check.ReportVersion, Host: n.Host, Rank: n.Rank, At: time.Now(), Took: time.Since(began),
		Verdict: check.Worst(findings), Findings: findings, Traits: slices.Clone(n.Always),
	}
	for _, part := range n.Parts {
		report.Traits = append(report.Traits, part.Traits()...)
	}
	slices.SortFunc(report.Traits, func(a, b check.Trait) int { return strings.Compare(a.ID, b.ID) })
	return report
}
