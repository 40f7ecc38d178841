package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// ReportVersion is the version of the form that a Report has as JSON.
const ReportVersion = 1

// Report is what all checks of a node have said.
type Report struct {
	Version  int           `json:"version"`
	Host     string        `json:"host"`
	Rank     int           `json:"rank"` // -1 where there is no run
	At       time.Time     `json:"at"`
	Took     time.Duration `json:"took_ns"`
	Verdict  Verdict       `json:"verdict"`
	Findings []Finding     `json:"findings"`
	// Traits are what the nodes of a job are compared by.
	Traits []Trait `json:"traits,omitempty"`
}

// Trait is the node's value of that id; empty where it tells none.
func (r Report) Trait(id string) string {
	value, _ := r.trait(id)
	return value
}

func (r Report) trait(id string) (value string, told bool) {
	for _, t := range r.Traits {
		if t.ID == id {
			return t.Value, true
		}
	}
	return "", false
}

// Trait is something that is the same on all nodes of a job, or should be.
type Trait struct {
	ID    string `json:"id"` // x.driver: also the check's that compares it
	Value string `json:"value"`
}

// warnings is a trait: nodes about which there is the same to be told are of the
// same kind, so that the head can tell it for all of them.
const warnings = "warnings"

// Kind returns the number that nodes of one kind have in common.
func (r Report) Kind() int64 {
	var warned []string
	for _, f := range Of(r.Findings, Warn, Unknown) {
		warned = append(warned, f.ID)
	}
	slices.Sort(warned)
	return fingerprint(append(slices.Clone(r.Traits), Trait{ID: warnings, Value: strings.Join(slices.Compact(warned), ",")}))
}

// Of returns the findings of these verdicts.
func Of(all []Finding, verdicts ...Verdict) (some []Finding) {
	for _, f := range all {
		if slices.Contains(verdicts, f.Verdict) {
			some = append(some, f)
		}
	}
	return some
}

// inSentence is how many things that were found a sentence bears, and
// devicesNamed how many devices each.
const (
	inSentence   = 3
	devicesNamed = 2
)

// Sentence tells what was found, the first few of it. What is the same of several
// devices is one thing.
func Sentence(found []Finding) string {
	var parts []string
	for len(found) > 0 && len(parts) < inSentence {
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
		part := f.ID + ": "
		if len(devices) > 0 {
			part += prose.List(devices, devicesNamed, ", ") + ": "
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
	return prose.Said(strings.Join(parts, "; "))
}

// Summary is a sentence of the findings of these verdicts; empty where there
// are none.
func Summary(all []Finding, verdicts ...Verdict) string {
	return Sentence(Of(all, verdicts...))
}
