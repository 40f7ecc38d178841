package flightrecorder

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Finding is the first collective of a group that not all its ranks have entered, or in which they
// differ, or otherwise that has not completed.
type Finding struct {
	Group   string // description and name of the group
	Ranks   []int  // all ranks of the group
	Missing []int  // ranks that have not entered it, as far as they have dumps
	Unknown []int  // ranks of the group without a dump
	Entered Entry  // as the first rank that has entered it
	Others  string // how other ranks have entered it, if that differs
	since   int64  // when a rank has entered it first
}

// Analyze compares the dumps of all ranks. The group in which a rank has waited longest comes first.
func Analyze(dumps []Dump) (findings []Finding) {
	for _, group := range groupNames(dumps) {
		if f, found := analyzeGroup(group, dumps); found {
			findings = append(findings, f)
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.since, b.since) })
	return findings
}

// groupNames returns the names of all groups in which a rank has entered a collective.
func groupNames(dumps []Dump) []string {
	names := make(map[string]bool)
	for _, d := range dumps {
		for _, e := range d.Entries {
			names[e.Group] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ranksOfGroup returns the ranks of a group: those that a dump lists, or all ranks of the default
// group, or otherwise those that have entered a collective of it.
func ranksOfGroup(group string, dumps []Dump) (ranks []int) {
	isDefault := false
	for _, d := range dumps {
		if listed := d.Groups[group]; listed != nil {
			return slices.Sorted(slices.Values(listed))
		}
		isDefault = isDefault || slices.ContainsFunc(d.Entries, func(e Entry) bool { return e.Group == group && e.Description == "default_pg" })
	}
	for _, d := range dumps {
		if isDefault || slices.ContainsFunc(d.Entries, func(e Entry) bool { return e.Group == group }) {
			ranks = append(ranks, d.Rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// analyzeGroup returns what distinguishes the ranks of a group.
func analyzeGroup(group string, dumps []Dump) (f Finding, found bool) {
	f.Ranks = ranksOfGroup(group, dumps)
	// Find the last collective of each rank.
	last := make(map[int]int64)
	entered := make(map[int64][]rankEntry)
	for _, d := range dumps {
		if !slices.Contains(f.Ranks, d.Rank) {
			continue
		}
		last[d.Rank] = 0
		for _, e := range d.Entries {
			if e.Group == group {
				last[d.Rank] = max(last[d.Rank], e.Sequence)
				entered[e.Sequence] = append(entered[e.Sequence], rankEntry{d.Rank, e})
			}
		}
	}
	for _, rank := range f.Ranks {
		if _, known := last[rank]; !known {
			f.Unknown = append(f.Unknown, rank)
		}
	}
	if len(last) == 0 {
		return f, false
	}
	// The first collective that a rank lacks, or in which two differ.
	for _, sequence := range slices.Sorted(maps.Keys(entered)) {
		here := entered[sequence]
		f.Missing = nil
		for rank, newest := range last {
			if newest < sequence {
				f.Missing = append(f.Missing, rank)
			}
		}
		f.Others = describeDifference(here)
		if len(f.Missing) == 0 && f.Others == "" {
			continue
		}
		slices.Sort(f.Missing)
		f.describeEntered(here)
		return f, true
	}
	// Otherwise the last one, if it has not completed.
	for _, sequence := range slices.Sorted(maps.Keys(entered)) {
		here := entered[sequence]
		if slices.ContainsFunc(here, func(e rankEntry) bool { return !e.Completed }) {
			f.describeEntered(here)
			return f, true
		}
	}
	return f, false
}

// describeEntered sets what is known about a collective that some ranks have entered.
func (f *Finding) describeEntered(entries []rankEntry) {
	f.Entered, f.since = entries[0].Entry, entries[0].CreatedAt
	for _, e := range entries {
		f.since = min(f.since, e.CreatedAt)
	}
	f.Group = groupLabel(f.Entered)
}

// rankEntry is an entry of a rank.
type rankEntry struct {
	rank int
	Entry
}

// describeDifference describes how ranks have entered a collective otherwise than the first of them.
// It returns an empty string if all have entered the same. Sizes may differ in some collectives.
func describeDifference(entries []rankEntry) string {
	others := make(map[string][]int)
	for _, e := range entries {
		if e.Name != entries[0].Name {
			others[e.Name] = append(others[e.Name], e.rank)
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		slices.Sort(others[name])
		parts = append(parts, textutil.FormatIndices("rank", others[name])+" entered "+name)
	}
	return strings.Join(parts, ", ")
}

// groupLabel names a group.
func groupLabel(e Entry) string {
	label := cmp.Or(e.Description, "undescribed")
	if e.Description == "default_pg" {
		return "the default group"
	}
	return fmt.Sprintf("group %s (%s)", e.Group, label)
}

// String describes the finding as a sentence.
func (f Finding) String() string {
	e := f.Entered
	what := fmt.Sprintf("collective %d of %s, %s", e.Sequence, f.Group, e.Name)
	if e.Sizes != "" {
		what += " of " + e.Sizes
	}
	if e.Caller != "" {
		what += " at " + e.Caller
	}
	var parts []string
	if len(f.Missing) > 0 {
		parts = append(parts, fmt.Sprintf("%s of %d %s not entered it", textutil.FormatIndices("rank", f.Missing), len(f.Ranks), map[bool]string{true: "has", false: "have"}[len(f.Missing) == 1]))
	}
	if f.Others != "" {
		parts = append(parts, f.Others)
	}
	if len(f.Unknown) > 0 {
		parts = append(parts, textutil.FormatIndices("rank", f.Unknown)+" left no dump")
	}
	if len(parts) == 0 {
		parts = append(parts, "all ranks have entered it, and it has not completed")
	}
	return what + ": " + strings.Join(parts, "; ")
}
