package doctor

import (
	"maps"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
)

// line makes findings of one id of the report's.
type line string

func (l line) pass(observed string) check.Finding {
	return check.Finding{ID: string(l), Verdict: check.Pass, Observed: observed}
}

func (l line) skip(observed string) check.Finding {
	return check.Finding{ID: string(l), Verdict: check.Skip, Observed: observed}
}

func (l line) unknown(observed string) check.Finding {
	return check.Finding{ID: string(l), Verdict: check.Unknown, Class: check.Node, Observed: observed}
}

// warn and fail tell who can mend it and how, and what would pass, where that helps.
func (l line) warn(by check.Class, observed, expected, hint string) check.Finding {
	return check.Finding{ID: string(l), Verdict: check.Warn, Class: by, Observed: observed, Expected: expected, Hint: hint}
}

func (l line) fail(by check.Class, observed, expected, hint string) check.Finding {
	return check.Finding{ID: string(l), Verdict: check.Fail, Class: by, Observed: observed, Expected: expected, Hint: hint}
}

// whole are findings that are about no node in particular.
func whole(findings ...check.Finding) (lines []Finding) {
	for _, f := range findings {
		lines = append(lines, Finding{Finding: f})
	}
	return lines
}

// about is a finding of some ranks.
func (c scene) about(f check.Finding, ranks []int) Finding {
	return Finding{Finding: f, Nodes: c.names(ranks)}
}

// by groups the ranks by what their facts have for a value, the empty one left out.
func (c scene) by(of func(Facts) string) (values []string, ranks map[string][]int) {
	ranks = make(map[string][]int)
	for _, f := range c.Facts {
		if value := of(f); value != "" {
			ranks[value] = append(ranks[value], f.Rank)
		}
	}
	return slices.Sorted(maps.Keys(ranks)), ranks
}
