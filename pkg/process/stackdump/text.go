package stackdump

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/progress"
)

const (
	// maxGroups is the maximum number of groups of a kind that are shown, so that all fit on a
	// screen: the smallest ones and the largest.
	maxGroups = 6
	// maxHostNames and maxRangesLength limit the lengths of lists of hosts and of ranks.
	maxHostNames    = 3
	maxRangesLength = 60
	// maxProblems is the maximum number of nodes shown that have not answered or could not be
	// inspected.
	maxProblems = 5
	// maxLineLength is the maximum length of a line in characters.
	maxLineLength = 160
)

// FormatText returns the picture as text for users.
func (p RunSnapshot) FormatText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s: %s\n", cleanLine(p.Run), p.describeCounts())
	// Nodes that have not answered or could not be inspected.
	for i, silent := range p.Unreachable {
		if i == maxProblems {
			fmt.Fprintf(&b, "%d more nodes have not answered\n", len(p.Unreachable)-i)
			break
		}
		fmt.Fprintf(&b, "%s: no answer: %s\n", cleanLine(silent.Host), cleanLine(silent.Reason))
	}
	for _, problem := range p.Problems[:min(len(p.Problems), maxProblems)] {
		b.WriteString(cleanLine(problem) + "\n")
	}
	if steps, _ := p.DescribeSteps(); steps != "" {
		b.WriteString(cleanLine(steps) + "\n")
	}
	// The groups, by kind.
	for kind := range numberOfKinds {
		shown, left := omitMiddle(slices.DeleteFunc(slices.Clone(p.Groups), func(g ActivityGroup) bool {
			return kindOrder(g) != kind
		}))
		for i, group := range shown {
			if left > 0 && i == len(shown)-1 {
				fmt.Fprintf(&b, "and %d more groups: --json shows all\n", left)
			}
			b.WriteString(group.formatText())
		}
	}
	if len(p.Groups) == 0 {
		b.WriteString("no running processes were found\n")
	}
	return b.String()
}

func (p RunSnapshot) describeCounts() string {
	ranks, answered := 0, p.Nodes-len(p.Unreachable)
	for _, s := range p.Reports {
		if _, rank := s.splitName(); rank >= 0 {
			ranks++
		}
	}
	words := fmt.Sprintf("%d %s", p.Nodes, textutil.PluralForm(p.Nodes, "node"))
	if answered < p.Nodes {
		words += fmt.Sprintf(", of which %d answered", answered)
	}
	if ranks > 0 {
		words += fmt.Sprintf("; %d %s", ranks, textutil.PluralForm(ranks, rankKind))
	}
	return words
}

// omitMiddle leaves out groups in the middle if there are too many. left is the number left out.
func omitMiddle(groups []ActivityGroup) (shown []ActivityGroup, left int) {
	if left = len(groups) - maxGroups; left <= 0 {
		return groups, 0
	}
	return append(groups[:maxGroups-1:maxGroups-1], groups[len(groups)-1]), left
}

// formatText returns a line with the members and their activity, and a line with further facts if
// there are any.
func (g ActivityGroup) formatText() string {
	line := fmt.Sprintf("%s: %s%s", g.describeMembers(), g.Activity, g.describeSubjects())
	facts := strings.Join(g.Facts, "; ")
	if facts != "" {
		facts = "    " + cleanLine(facts) + "\n"
	}
	return cleanLine(line) + "\n" + facts
}

// cleanLine makes a line safe for terminals and limits its length.
func cleanLine(line string) string {
	return textutil.TruncateText(textutil.StripControls(line), maxLineLength)
}

// describeMembers names the members, such as "rank 3 on n1" or "63 ranks 0-16,18-63 on 8 nodes".
func (g ActivityGroup) describeMembers() string {
	name, of := g.Child, ""
	if len(g.Ranks) > 0 && g.Child != rankKind {
		of = " of " + g.Child
	}
	switch {
	case len(g.Ranks) > 2:
		name = fmt.Sprintf("%d ranks %s%s", g.Count, cutRanges(textutil.FormatRanges(g.Ranks)), of)
	case len(g.Ranks) > 0:
		name = textutil.FormatIndices("rank", g.Ranks) + of
	case g.Count > 1:
		name = fmt.Sprintf("%d of %s", g.Count, g.Child)
	}
	on := fmt.Sprintf("%d nodes", len(g.Hosts))
	if len(g.Hosts) <= maxHostNames {
		on = strings.Join(g.Hosts, ", ")
	}
	return name + " on " + on
}

// cutRanges shortens a list of ranges that is too long, at the end of a range.
func cutRanges(list string) string {
	if len(list) <= maxRangesLength {
		return list
	}
	return list[:strings.LastIndexByte(list[:maxRangesLength], ',')+1] + "…"
}

// describeSubjects describes the subject of the members' system calls: the common file or peer, or
// the first of several.
func (g ActivityGroup) describeSubjects() string {
	switch {
	case len(g.Subjects) == 0:
		return ""
	case len(g.Subjects) == 1:
		return " (" + g.Subjects[0] + ")"
	default:
		return fmt.Sprintf(" (%s and %d others)", g.Subjects[0], len(g.Subjects)-1)
	}
}

// describeFacts describes what else is known about the members. Numbers are given as ranges.
func (g ActivityGroup) describeFacts() (facts []string) {
	var ago, cores, steps []float64
	var missing, errors, problems []string
	for _, s := range g.members {
		cores = append(cores, s.Cores)
		if s.Step != nil {
			steps = append(steps, *s.Step)
		}
		if s.Output.Bytes > 0 {
			ago = append(ago, s.Output.AgoS)
		}
		if s.Output.Error != "" {
			errors = append(errors, s.Output.Error)
		}
		for _, wait := range s.Waits {
			missing = append(missing, describeWait(wait))
		}
		problems = append(problems, s.readProblems()...)
	}
	// Only children that run have further facts.
	if g.members[0].Process == nil {
		return nil
	}
	facts = uniqueWords(missing)
	facts = append(facts, "processor: "+formatRange(cores, formatCores))
	switch silent := g.Count - len(ago); {
	case silent == g.Count:
		facts = append(facts, "printed nothing")
	case silent > 0:
		facts = append(facts, fmt.Sprintf("%d printed nothing, the others last %s ago",
			silent, formatRange(ago, formatSeconds)))
	default:
		facts = append(facts, "printed last "+formatRange(ago, formatSeconds)+" ago")
	}
	if errors = uniqueWords(errors); len(errors) > 0 {
		facts = append(facts, "the last output is an error: "+textutil.JoinLimited(errors, 1, "; "))
	}
	if len(steps) > 0 {
		facts = append(facts, "at step "+formatRange(steps, progress.FormatStep))
	}
	if g.Count == 1 {
		facts = append(facts, g.members[0].describeProcess())
	}
	if problems = uniqueWords(problems); len(problems) > 0 {
		facts = append(facts, textutil.JoinLimited(problems, 1, "; "))
	}
	return facts
}

func (s ChildReport) describeProcess() string {
	p := s.Process
	words := fmt.Sprintf("pid %d %s", p.PID, p.Name)
	if p.Thread != 0 {
		words += fmt.Sprintf(", thread %d", p.Thread)
	}
	if s.Processes > 1 {
		words += fmt.Sprintf(", one of %d processes", s.Processes)
	}
	return words
}

// readProblems returns the reasons why the state of a child could not be read completely.
func (s ChildReport) readProblems() (problems []string) {
	if s.Stack != nil && s.Stack.Problem != "" {
		problems = append(problems, s.Stack.Problem)
	}
	if s.Process != nil && s.Process.Problem != "" && s.Process.Call == "" {
		problems = append(problems, s.Process.Problem)
	}
	return problems
}

// describeWait describes how long a program has waited in the rendezvous, and for which ranks.
func describeWait(wait Wait) string {
	words := fmt.Sprintf("%s %s for %s", wait.Kind, wait.Name, formatSeconds(wait.SinceS))
	if len(wait.Missing) > 0 {
		verb := map[bool]string{true: "is", false: "are"}[len(wait.Missing) == 1]
		ranks := cutRanges(textutil.FormatIndices(rankKind, wait.Missing))
		words += ", where " + ranks + " " + verb + " missing"
	}
	return words
}

// formatRange formats one value, or the minimum and the maximum of several different values.
func formatRange(values []float64, words func(float64) string) string {
	lowest, highest := words(slices.Min(values)), words(slices.Max(values))
	if lowest == highest {
		return highest
	}
	return lowest + " to " + highest
}

// formatSeconds formats a duration in seconds; from two minutes on, in larger units.
func formatSeconds(s float64) string {
	d := time.Duration(math.Round(s)) * time.Second
	if d >= 2*time.Minute {
		return textutil.BriefDuration(d)
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

// formatCores formats an amount of processor time as a part of a core, or as a number of cores.
func formatCores(cores float64) string {
	switch {
	case cores < 2*maxIdleShare: // below the resolution of the kernel's counter
		return "none"
	case cores < 1.5:
		return fmt.Sprintf("%.0f %% of a core", 100*cores)
	default:
		return fmt.Sprintf("%.1f cores", cores)
	}
}
