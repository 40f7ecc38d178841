package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// collectiveFinding is the first collective of a group that not all its ranks have entered, or in
// which they differ, or otherwise that has not completed.
type collectiveFinding struct {
	ranks   []int      // all ranks of the group
	missing []int      // ranks that have not entered it, as far as they have dumps
	unknown []int      // ranks of the group without a dump
	entered collective // as the first rank that has entered it
	others  string     // how other ranks have entered it, if that differs
	since   int64      // when a rank has entered it first
}

// findHungCollectives compares the dumps of all ranks. The group in which a rank has waited longest
// comes first.
func findHungCollectives(dumps []flightDump) (findings []collectiveFinding) {
	groups := make(map[string]bool)
	for _, d := range dumps {
		for _, e := range d.collectives {
			groups[e.group] = true
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if f, found := analyzeGroup(group, dumps); found {
			findings = append(findings, f)
		}
	}
	slices.SortStableFunc(findings, func(a, b collectiveFinding) int { return cmp.Compare(a.since, b.since) })
	return findings
}

// ranksOfGroup returns the ranks of a group: those that a dump lists, or all ranks of the default
// group, or otherwise those that have entered a collective of it.
func ranksOfGroup(group string, dumps []flightDump) (ranks []int) {
	isOfGroup := func(e collective) bool { return e.group == group }
	isDefault := false
	for _, d := range dumps {
		if listed := d.groups[group]; listed != nil {
			return slices.Sorted(slices.Values(listed))
		}
		isDefault = isDefault || slices.ContainsFunc(d.collectives, func(e collective) bool {
			return isOfGroup(e) && e.description == defaultGroup
		})
	}
	for _, d := range dumps {
		if isDefault || slices.ContainsFunc(d.collectives, isOfGroup) {
			ranks = append(ranks, d.rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// analyzeGroup returns what distinguishes the ranks of a group.
func analyzeGroup(group string, dumps []flightDump) (f collectiveFinding, found bool) {
	f.ranks = ranksOfGroup(group, dumps)
	// Find the last collective of each rank.
	last := make(map[int]int64)
	entered := make(map[int64][]rankCollective)
	for _, d := range dumps {
		if !slices.Contains(f.ranks, d.rank) {
			continue
		}
		last[d.rank] = 0
		for _, e := range d.collectives {
			if e.group == group {
				last[d.rank] = max(last[d.rank], e.sequence)
				entered[e.sequence] = append(entered[e.sequence], rankCollective{d.rank, e})
			}
		}
	}
	for _, rank := range f.ranks {
		if _, known := last[rank]; !known {
			f.unknown = append(f.unknown, rank)
		}
	}
	// Find the first collective that a rank lacks, or in which two differ, and otherwise the first that
	// has not completed.
	sequences := slices.Sorted(maps.Keys(entered))
	for _, sequence := range sequences {
		f.missing = nil
		for rank, newest := range last {
			if newest < sequence {
				f.missing = append(f.missing, rank)
			}
		}
		slices.Sort(f.missing)
		if f.others = describeDifference(entered[sequence]); len(f.missing) > 0 || f.others != "" {
			f.setEntered(entered[sequence])
			return f, true
		}
	}
	for _, sequence := range sequences {
		if slices.ContainsFunc(entered[sequence], func(e rankCollective) bool { return !e.completed }) {
			f.setEntered(entered[sequence])
			return f, true
		}
	}
	return f, false
}

func (f *collectiveFinding) setEntered(entries []rankCollective) {
	f.entered, f.since = entries[0].collective, entries[0].createdAt
	for _, e := range entries {
		f.since = min(f.since, e.createdAt)
	}
}

// rankCollective is a collective that a rank has entered.
type rankCollective struct {
	rank int
	collective
}

// describeDifference describes how ranks have entered a collective otherwise than the first of them.
// It returns an empty string if all have entered the same. Sizes may differ in some collectives.
func describeDifference(entries []rankCollective) string {
	others := make(map[string][]int)
	for _, e := range entries {
		if e.name != entries[0].name {
			others[e.name] = append(others[e.name], e.rank)
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		slices.Sort(others[name])
		parts = append(parts, textutil.FormatIndices("rank", others[name])+" entered "+name)
	}
	return strings.Join(parts, ", ")
}

// defaultGroup is torch's description of the group of all ranks.
const defaultGroup = "default_pg"

func (e collective) groupLabel() string {
	if e.description == defaultGroup {
		return "the default group"
	}
	return fmt.Sprintf("group %s (%s)", e.group, cmp.Or(e.description, "undescribed"))
}

// String describes the finding as a sentence.
func (f collectiveFinding) String() string {
	e := f.entered
	what := fmt.Sprintf("collective %d of %s, %s", e.sequence, e.groupLabel(), e.name)
	if e.sizes != "" {
		what += " of " + e.sizes
	}
	if e.caller != "" {
		what += " at " + e.caller
	}
	var parts []string
	if n := len(f.missing); n > 0 {
		verb := "have"
		if n == 1 {
			verb = "has"
		}
		missing := textutil.FormatIndices("rank", f.missing)
		parts = append(parts, fmt.Sprintf("%s of %d %s not entered it", missing, len(f.ranks), verb))
	}
	if f.others != "" {
		parts = append(parts, f.others)
	}
	if len(f.unknown) > 0 {
		parts = append(parts, textutil.FormatIndices("rank", f.unknown)+" left no dump")
	}
	if len(parts) == 0 {
		parts = append(parts, "all ranks have entered it, and it has not completed")
	}
	return what + ": " + strings.Join(parts, "; ")
}
