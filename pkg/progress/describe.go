package progress

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Describe describes the progress of a job for people: "step 1200, 3.2 steps/s, goodput 91%". It has
// the slowest rank if that is behind the median. nodeName returns the name of a node.
func Describe(p record.Progress, nodeName func(node int) string) string {
	parts := []string{"step " + FormatStep(p.Step)}
	if p.MaxStep > p.Step {
		parts[0] += " (before a restart " + FormatStep(p.MaxStep) + ")"
	}
	if p.Rate > 0 {
		parts = append(parts, FormatRate(p.Rate))
	}
	parts = append(parts, fmt.Sprintf("goodput %s of %s", FormatGoodput(p.Goodput),
		textutil.FlagDuration(p.Elapsed.Round(time.Second))))
	if lost := DescribeLost(p); lost != "" {
		parts = append(parts, lost)
	}
	if slow := p.Slowest; slow != nil && IsStraggler(p) {
		parts = append(parts, fmt.Sprintf("slowest %s: step %s, the median is %s",
			NameSlowest(*slow, nodeName(slow.NodeIndex)), FormatStep(slow.Step), FormatStep(slow.Median)))
	}
	return strings.Join(parts, ", ")
}

// NameSlowest names the slowest rank with its node. A program without ranks has the name of the node or, in
// a run with roles, that of its instance.
func NameSlowest(slow record.SlowestRank, node string) string {
	switch {
	case slow.Rank >= 0:
		return fmt.Sprintf("%s (%s)", record.WorldRank{Number: slow.Rank, World: slow.World}, node)
	case slow.World != "":
		return fmt.Sprintf("%s (%s)", slow.World, node)
	}
	return node
}

// reportDelay is the maximum time by which the steps of different nodes are of different times.
const reportDelay = 10 * time.Second

// IsStraggler reports whether the slowest rank is further behind the median than ranks that take
// their steps together are: by more than the distance between two reports, and than what the others
// do until their steps are known everywhere.
func IsStraggler(p record.Progress) bool {
	return p.Slowest != nil && p.Slowest.Median-p.Slowest.Step > max(p.Stride, p.Rate*reportDelay.Seconds())
}

// FormatRate formats a rate: as steps per second, or as the time per step if that is more than one
// second.
func FormatRate(rate float64) string {
	if rate < 1 {
		return fmt.Sprintf("%.3g s/step", 1/rate)
	}
	return fmt.Sprintf("%.3g steps/s", rate)
}

// FormatGoodput formats a goodput from 0 to 1 as a percentage, rounded down.
func FormatGoodput(goodput float64) string {
	return fmt.Sprintf("%.0f%%", math.Floor(goodput*100))
}

// DescribeLost describes the steps that were repeated after restarts. It returns an empty string if
// there were none.
func DescribeLost(p record.Progress) string {
	total := 0.0
	for _, lost := range p.Lost {
		total += lost.Steps
	}
	switch {
	case total == 0:
		return ""
	case len(p.Lost) == 1:
		return FormatStep(total) + " steps repeated after a restart"
	default:
		return fmt.Sprintf("%s steps repeated after %d restarts", FormatStep(total), len(p.Lost))
	}
}
