package check

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// ReportVersion is the version of a Report's JSON format.
const ReportVersion = 1

// Report holds the results of all checks of a node.
type Report struct {
	Version   int           `json:"version"`
	Host      string        `json:"host"`
	NodeIndex int           `json:"rank"` // -1 outside of a run
	At        time.Time     `json:"at"`
	Took      time.Duration `json:"took_ns"`
	Verdict   Verdict       `json:"verdict"`
	Findings  []Finding     `json:"findings"`
	// Attributes are the attributes by which the nodes of a job are compared.
	Attributes []Attribute `json:"traits,omitempty"`
}

// Attribute returns the node's value of the attribute with that id, or an empty string if it has
// none.
func (r Report) Attribute(id string) string {
	for _, a := range r.Attributes {
		if a.ID == id {
			return a.Value
		}
	}
	return ""
}

// Attribute is an attribute that is, or should be, the same on all nodes of a job.
type Attribute struct {
	ID    string `json:"id"` // x.driver; also the id of the check that compares it
	Value string `json:"value"`
}

// KindHash returns a positive 48-bit hash that is the same for all nodes with the same attributes,
// in any order, and the same warnings, which the head reports per kind.
func (r Report) KindHash() int64 {
	var warned []string
	for _, f := range FilterByVerdict(r.Findings, Warn, Unknown) {
		warned = append(warned, f.ID)
	}
	slices.Sort(warned)
	warnings := Attribute{"warnings", strings.Join(slices.Compact(warned), ",")}
	all := append(slices.Clone(r.Attributes), warnings)
	slices.SortFunc(all, func(a, b Attribute) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Value, b.Value))
	})
	digest := sha256.New()
	for _, t := range slices.Compact(all) {
		fmt.Fprintf(digest, "%q=%q\n", t.ID, t.Value) // a hash never returns an error
	}
	return max(1, int64(binary.BigEndian.Uint64(digest.Sum(nil))>>16))
}

// FilterByVerdict returns the findings that have one of the verdicts.
func FilterByVerdict(all []Finding, verdicts ...Verdict) (some []Finding) {
	for _, f := range all {
		if slices.Contains(verdicts, f.Verdict) {
			some = append(some, f)
		}
	}
	return some
}

// FindingsOn returns the findings as those of the given nodes.
func (r Report) FindingsOn(nodes ...int) []Finding {
	found := slices.Clone(r.Findings)
	for i := range found {
		found[i].NodeIndices = nodes
	}
	return found
}

// GroupFindings groups findings by key, in the order in which the keys first occur.
func GroupFindings[K comparable](all []Finding, key func(Finding) K) (groups [][]Finding) {
	at := make(map[K]int)
	for _, f := range all {
		i, known := at[key(f)]
		if !known {
			i = len(groups)
			at[key(f)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// NodesOf returns the sorted node indices of all findings.
func NodesOf(all []Finding) (nodes []int) {
	for _, f := range all {
		nodes = append(nodes, f.NodeIndices...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// maxSentenceFindings is how many findings a sentence lists, and maxNamedDevices how many devices
// it names for each of them.
const (
	maxSentenceFindings = 3
	maxNamedDevices     = 2
)

// FormatSentence returns the first few findings as one sentence. Findings that differ only in the
// device are listed as one.
func FormatSentence(found []Finding) string {
	type key struct {
		id, observed, expected string
		onDevice               bool
	}
	var parts []string
	left := len(found)
	groups := GroupFindings(found, func(f Finding) key {
		return key{f.ID, f.Observed, f.Expected, f.Device != nil}
	})
	for _, same := range groups[:min(len(groups), maxSentenceFindings)] {
		part := same[0].ID + ": "
		if same[0].Device != nil {
			devices := textutil.MapSlice(same, func(f Finding) string { return f.Device.String() })
			part += textutil.JoinLimited(devices, maxNamedDevices, ", ") + ": "
		}
		part += same[0].Observed
		if same[0].Expected != "" {
			part += " (expected: " + same[0].Expected + ")"
		}
		parts, left = append(parts, part), left-len(same)
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", left))
	}
	return textutil.TerminalLine(strings.Join(parts, "; "))
}

// SummarizeFindings returns one sentence that lists the findings with one of the verdicts. It is
// empty if there are none.
func SummarizeFindings(all []Finding, verdicts ...Verdict) string {
	return FormatSentence(FilterByVerdict(all, verdicts...))
}
