package why

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	// mostGroups is the maximum number of groups of a kind that are shown, so that all fit on a
	// screen: the smallest ones and the largest.
	mostGroups = 6
	// mostNames and mostRanges limit the lengths of lists of hosts and of ranks.
	mostNames  = 3
	mostRanges = 60
	// mostProblems is the maximum number of nodes shown that have not answered or could not be
	// inspected.
	mostProblems = 5
	// mostWords is the maximum length of a line in characters.
	mostWords = 160
)

// Text returns the picture as text for users.
func (p Picture) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s: %s\n", clean(p.Run), p.counts())
	// Nodes that have not answered or could not be inspected.
	for i, silent := range p.Silent {
		if i == mostProblems {
			fmt.Fprintf(&b, "%d more nodes have not answered\n", len(p.Silent)-i)
			break
		}
		fmt.Fprintf(&b, "%s: no answer: %s\n", clean(silent.Host), clean(silent.Why))
	}
	for _, problem := range p.Problems[:min(len(p.Problems), mostProblems)] {
		b.WriteString(clean(problem) + "\n")
	}
	// The groups, by kind.
	for kind := range slices.Values(p.kinds()) {
		shown, left := few(slices.DeleteFunc(slices.Clone(p.Groups), func(g Group) bool { return place(g) != kind }))
		for i, group := range shown {
			if left > 0 && i == len(shown)-1 {
				fmt.Fprintf(&b, "and %d more groups: --json shows all\n", left)
			}
			b.WriteString(group.text())
		}
	}
	if len(p.Groups) == 0 {
		b.WriteString("nothing runs that could be seen\n")
	}
	return b.String()
}

// counts describes the numbers of nodes and ranks.
func (p Picture) counts() string {
	ranks, answered := 0, p.Nodes-len(p.Silent)
	for _, s := range p.Seen {
		if kind, _ := s.kind(); kind == aRank {
			ranks++
		}
	}
	words := fmt.Sprintf("%d %s", p.Nodes, prose.Noun(p.Nodes, "node"))
	if answered < p.Nodes {
		words += fmt.Sprintf(", of which %d told", answered)
	}
	if ranks > 0 {
		words += fmt.Sprintf("; %d %s", ranks, prose.Noun(ranks, aRank))
	}
	return words
}

// kinds returns the positions of the groups' kinds in ascending order, without duplicates.
func (p Picture) kinds() (kinds []int) {
	for _, g := range p.Groups {
		if kind := place(g); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// few leaves out groups in the middle if there are too many. left is the number left out.
func few(groups []Group) (shown []Group, left int) {
	if left = len(groups) - mostGroups; left <= 0 {
		return groups, 0
	}
	return append(groups[:mostGroups-1:mostGroups-1], groups[len(groups)-1]), left
}

// text returns a line with the members and their activity, and a line with further facts if there
// are any.
func (g Group) text() string {
	line := fmt.Sprintf("%s: %s%s", g.who(), g.Doing, g.of())
	facts := strings.Join(g.Facts, "; ")
	if facts != "" {
		facts = "    " + clean(facts) + "\n"
	}
	return clean(line) + "\n" + facts
}

// clean makes a line safe for terminals and limits its length.
func clean(line string) string { return prose.Cut(prose.Plain(line), mostWords) }

// who names the members, such as "rank 3 on n1" or "63 ranks 0-16,18-63 on 8 nodes".
func (g Group) who() string {
	name := g.Child
	switch {
	case g.Child == aRank && g.Count > 2:
		name = fmt.Sprintf("%d ranks %s", g.Count, cutRanges(prose.Ranges(g.Ranks)))
	case g.Child == aRank:
		name = prose.Ranks(g.Ranks)
	case g.Count > 1:
		name = fmt.Sprintf("%d of %s", g.Count, g.Child)
	}
	on := fmt.Sprintf("%d nodes", len(g.Hosts))
	if len(g.Hosts) <= mostNames {
		on = strings.Join(g.Hosts, ", ")
	}
	return name + " on " + on
}

// cutRanges shortens a list of ranges that is too long, at the end of a range.
func cutRanges(list string) string {
	if len(list) <= mostRanges {
		return list
	}
	return list[:strings.LastIndexByte(list[:mostRanges], ',')+1] + "…"
}

// of describes the subject of the members' system calls: the common file or peer, or the first of
// several.
func (g Group) of() string {
	switch {
	case len(g.Of) == 0:
		return ""
	case len(g.Of) == 1:
		return " (" + g.Of[0] + ")"
	default:
		return fmt.Sprintf(" (%s and %d others)", g.Of[0], len(g.Of)-1)
	}
}

// facts describes what else is known about the members. Numbers are given as ranges.
func (g Group) facts() (facts []string) {
	var still, ago, cores []float64
	var missing, problems []string
	for _, s := range g.members {
		cores = append(cores, s.Cores)
		if s.Process != nil && !s.Process.isBusy() {
			still = append(still, s.Process.StillS)
		}
		if s.Output.Bytes > 0 {
			ago = append(ago, s.Output.AgoS)
		}
		for _, wait := range s.Waits {
			missing = append(missing, missingWords(wait))
		}
		problems = append(problems, s.trouble()...)
	}
	// Describe the waits, the processor time and the output.
	// Only children that run have further facts.
	if g.members[0].Process == nil {
		return nil
	}
	facts = once(missing)
	if len(still) == g.Count && slices.Max(still) >= 1 {
		facts = append(facts, "has not run for "+span(still, seconds))
	}
	facts = append(facts, "processor: "+span(cores, share))
	switch silent := g.Count - len(ago); {
	case silent == g.Count:
		facts = append(facts, "printed nothing")
	case silent > 0:
		facts = append(facts, fmt.Sprintf("%d printed nothing, the others last %s ago", silent, span(ago, seconds)))
	default:
		facts = append(facts, "printed last "+span(ago, seconds)+" ago")
	}
	if g.Count == 1 {
		facts = append(facts, g.members[0].process())
	}
	if problems = once(problems); len(problems) > 0 {
		facts = append(facts, prose.List(problems, 1, "; "))
	}
	return facts
}

// process describes the process that represents a child.
func (s Seen) process() string {
	p := s.Process
	words := fmt.Sprintf("pid %d %s", p.PID, p.Name)
	if p.Thread != 0 {
		words += fmt.Sprintf(", thread %d", p.Thread)
	}
	if s.Processes > 1 {
		words += fmt.Sprintf(", one of %d processes", s.Processes)
	}
	if p.Tracer != 0 {
		words += fmt.Sprintf(", traced by pid %d", p.Tracer)
	}
	return words
}

// trouble returns the reasons why the state of a child could not be read completely.
func (s Seen) trouble() (problems []string) {
	if s.Stack != nil && s.Stack.Problem != "" {
		problems = append(problems, s.Stack.Problem)
	}
	if s.Process != nil && s.Process.Problem != "" && s.Process.Call == "" {
		problems = append(problems, s.Process.Problem)
	}
	return problems
}

// missingWords describes how long a program has waited in the rendezvous, and for which ranks.
func missingWords(wait Wait) string {
	words := fmt.Sprintf("%s %s for %s", wait.Kind, wait.Name, seconds(wait.SinceS))
	if len(wait.Missing) > 0 {
		words += ", where " + cutRanges(prose.Ranks(wait.Missing)) + " " + isMissing(len(wait.Missing))
	}
	return words
}

// isMissing returns the verb for n ranks.
func isMissing(n int) string {
	if n == 1 {
		return "is missing"
	}
	return "are missing"
}

// span formats one value, or the minimum and the maximum of several different values.
func span(values []float64, words func(float64) string) string {
	least, most := words(slices.Min(values)), words(slices.Max(values))
	if least == most {
		return most
	}
	return least + " to " + most
}

// seconds formats a duration in seconds; from two minutes on, in larger units.
func seconds(s float64) string {
	d := time.Duration(math.Round(s)) * time.Second
	if d >= 2*time.Minute {
		return prose.Brief(d)
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

// share formats an amount of processor time as a part of a core, or as a number of cores.
func share(cores float64) string {
	switch {
	case cores < 2*idleShare: // below the resolution of the kernel's counter
		return "none"
	case cores < 1.5:
		return fmt.Sprintf("%.0f %% of a core", 100*cores)
	default:
		return fmt.Sprintf("%.1f cores", cores)
	}
}
