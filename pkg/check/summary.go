package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// warnings is a trait: nodes about which there is the same to be told are of the
// same kind, so that the head can tell it for all of them.
const warnings = "warnings"

// Kind returns the number that nodes of one kind have in common.
func (r Report) Kind() int64 {
	return Fingerprint(append(slices.Clone(r.Traits), Trait{ID: warnings, Value: strings.Join(r.Warned(), ",")}))
}

// Warned returns the checks of a node that have something to tell, in order.
func (r Report) Warned() []string {
	var ids []string
	for _, f := range Of(r.Findings, Warn, Unknown) {
		ids = append(ids, f.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
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
