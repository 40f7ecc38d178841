package stackdump

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// maxBehind is the maximum number of ranks that are named because they are behind, and of groups
	// that are described in one line.
	maxBehind = 3
	// maxShownFrames is the maximum number of frames of a stack that are shown.
	maxShownFrames = 16
)

// DescribeSteps describes how far the running ranks have got, as far as they report steps. It returns
// an empty string if none does. areBehind reports that it names ranks that are behind the others.
func (p RunSnapshot) DescribeSteps() (text string, areBehind bool) {
	running, reporting := p.reportingRanks()
	if len(reporting) == 0 {
		return "", false
	}
	last := *reporting[len(reporting)-1].Step
	step := progress.FormatStep(last)
	behind := slices.IndexFunc(reporting, func(s ChildReport) bool { return *s.Step == last })
	switch {
	case running > 1 && len(reporting) == 1:
		return fmt.Sprintf("only %s reports steps, and is at step %s: steps do not show which ranks are behind",
			reporting[0].rankName(), step), false
	case behind == 0:
		return fmt.Sprintf("%d of %d ranks report steps, and are at step %s",
			len(reporting), running, step), false
	}
	var names []string
	for _, s := range reporting[:behind] {
		names = append(names, fmt.Sprintf("%s on %s at step %s (%s)",
			s.rankName(), s.Host, progress.FormatStep(*s.Step), s.describeActivity()))
	}
	verb := map[bool]string{true: "is", false: "are"}[behind == 1]
	return fmt.Sprintf("%d of %d ranks %s behind step %s: %s", behind, len(reporting), verb, step,
		textutil.JoinLimited(names, maxBehind, ", ")), true
}

// reportingRanks returns the running ranks that report steps, the slowest first, and the number of
// all running ranks of their worlds: the ranks of other instances need not report steps.
func (p RunSnapshot) reportingRanks() (running int, reporting []ChildReport) {
	kinds := make(map[string]int) // the running ranks'
	for _, s := range p.Reports {
		kind, rank := s.splitName()
		if rank < 0 || s.Ended != "" {
			continue
		}
		kinds[kind]++
		if s.Step != nil {
			reporting = append(reporting, s)
		}
	}
	for kind, ranks := range kinds {
		if slices.ContainsFunc(reporting, func(s ChildReport) bool { return s.BelongsTo(kind) }) {
			running += ranks
		}
	}
	slices.SortFunc(reporting, func(a, b ChildReport) int {
		kind, one := a.splitName()
		otherKind, other := b.splitName()
		return cmp.Or(cmp.Compare(*a.Step, *b.Step), strings.Compare(kind, otherKind), one-other)
	})
	return running, reporting
}

// rankName returns the name of a rank in messages: "rank 3", or "rank 3 of trainer.0".
func (s ChildReport) rankName() string {
	kind, rank := s.splitName()
	if kind == rankKind || rank < 0 {
		return s.Child
	}
	return record.WorldRank{Number: rank, World: kind}.String()
}

// DescribeRanks describes the first groups of ranks and of processes of instances, which are the most
// significant ones, in one line.
func (p RunSnapshot) DescribeRanks() string {
	var words []string
	for _, g := range p.Groups {
		if g.hasPrograms() {
			words = append(words, g.describeMembers()+": "+g.Activity)
		}
	}
	return textutil.JoinLimited(words, maxBehind, "; ")
}

// FormatStacks returns the innermost frames of one rank of each group that a debugger has read, as
// lines for users.
func (p RunSnapshot) FormatStacks() string {
	var b strings.Builder
	shown, _ := omitMiddle(slices.DeleteFunc(slices.Clone(p.Groups), func(g ActivityGroup) bool {
		return !g.hasPrograms()
	}))
	for _, g := range shown {
		at := slices.IndexFunc(p.Reports, func(s ChildReport) bool {
			_, rank := s.splitName()
			return s.BelongsTo(g.Child) && (len(g.Ranks) == 0 || rank == g.Ranks[0]) && s.Ended == ""
		})
		if at < 0 || p.Reports[at].Stack == nil {
			continue
		}
		stack := p.Reports[at].Stack
		frames := slices.DeleteFunc(slices.Clone(stack.Frames), func(f Frame) bool {
			return f.Func == unknownFunction || slices.Contains(starters, f.methodName())
		})
		if len(frames) == 0 {
			continue
		}
		fmt.Fprintf(&b, "stack of %s on %s, by %s:\n",
			p.Reports[at].rankName(), cleanLine(p.Reports[at].Host), stack.Source)
		for _, frame := range frames[:min(len(frames), maxShownFrames)] {
			place := frame.Library
			if frame.File != "" {
				place = frame.sourceLine()
			}
			line := fmt.Sprintf("%s (%s)", frame.Func, cmp.Or(place, "unknown file"))
			b.WriteString("    " + cleanLine(line) + "\n")
		}
	}
	return b.String()
}
