package check

import (
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
	value, _ := r.lookupAttribute(id)
	return value
}

// lookupAttribute returns the value of an attribute, and whether the node reports it.
func (r Report) lookupAttribute(id string) (value string, told bool) {
	for _, t := range r.Attributes {
		if t.ID == id {
			return t.Value, true
		}
	}
	return "", false
}

// Attribute is an attribute that is, or should be, the same on all nodes of a job.
type Attribute struct {
	ID    string `json:"id"` // x.driver; also the id of the check that compares it
	Value string `json:"value"`
}

// warningsAttribute is the id of an internal attribute that lists the checks that warn. Because of
// it nodes with different warnings are of different kinds, and the head can report warnings per
// kind.
const warningsAttribute = "warnings"

// KindHash returns a hash that is the same for all nodes with the same attributes and the same
// warnings.
func (r Report) KindHash() int64 {
	var warned []string
	for _, f := range FilterByVerdict(r.Findings, Warn, Unknown) {
		warned = append(warned, f.ID)
	}
	slices.Sort(warned)
	return hashAttributes(append(slices.Clone(r.Attributes), Attribute{ID: warningsAttribute, Value: strings.Join(slices.Compact(warned), ",")}))
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

// maxSentenceFindings is how many findings a sentence lists, and maxNamedDevices how many devices
// it names for each of them.
const (
	maxSentenceFindings = 3
	maxNamedDevices     = 2
)

// FormatSentence returns the first few findings as one sentence. Findings that differ only in the
// device are listed as one.
func FormatSentence(found []Finding) string {
	var parts []string
	// Combine the first finding with all that are equal except for the device.
	for len(found) > 0 && len(parts) < maxSentenceFindings {
		f := found[0]
		same := func(other Finding) bool {
			return other.ID == f.ID && other.Observed == f.Observed && other.Expected == f.Expected && (f.Device == nil) == (other.Device == nil)
		}
		var devices []string
		for _, other := range found {
			if same(other) && f.Device != nil {
				devices = append(devices, other.Device.String())
			}
		}
		found = slices.DeleteFunc(slices.Clone(found), same)
		// Format them as "id: devices: observed (expected: …)".
		part := f.ID + ": "
		if len(devices) > 0 {
			part += textutil.JoinLimited(devices, maxNamedDevices, ", ") + ": "
		}
		part += f.Observed
		if f.Expected != "" {
			part += " (expected: " + f.Expected + ")"
		}
		parts = append(parts, part)
	}
	if len(found) > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", len(found)))
	}
	return textutil.TerminalLine(strings.Join(parts, "; "))
}

// SummarizeFindings returns one sentence that lists the findings with one of the verdicts. It is
// empty if there are none.
func SummarizeFindings(all []Finding, verdicts ...Verdict) string {
	return FormatSentence(FilterByVerdict(all, verdicts...))
}
