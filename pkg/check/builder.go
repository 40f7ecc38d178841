package check

import "fmt"

// FindingBuilder collects the findings of one check.
type FindingBuilder struct {
	// Template contains the values that all findings of the check have in common.
	Template Finding
	Findings []Finding
	// attributes are the attributes that the check has read, by which nodes are compared.
	attributes []Attribute
}

// AddFinding adds a finding. The caller may change the returned Finding until the next one is
// added.
func (s *FindingBuilder) AddFinding(v Verdict, by Class, observed, expected, hint string) *Finding {
	f := s.Template
	f.Verdict, f.Class, f.Observed, f.Expected, f.Hint = v, by, observed, expected, hint
	s.Findings = append(s.Findings, f)
	return &s.Findings[len(s.Findings)-1]
}

// AddPass adds a finding that the check has passed.
func (s *FindingBuilder) AddPass(observed string) { s.AddFinding(Pass, "", observed, "", "") }

// AddSkip adds a finding that the check does not apply, with the reason.
func (s *FindingBuilder) AddSkip(observed string) { s.AddFinding(Skip, "", observed, "", "") }

// AddWarning adds a finding about a problem that does not stop the job. by is the class of the
// fault, expected is what would pass (it may be empty), and hint is how to fix it.
func (s *FindingBuilder) AddWarning(by Class, observed, expected, hint string) *Finding {
	return s.AddFinding(Warn, by, observed, expected, hint)
}

// AddFailure adds a finding about a problem with which no job should start. The parameters are
// those of Warn.
func (s *FindingBuilder) AddFailure(by Class, observed, expected, hint string) *Finding {
	return s.AddFinding(Fail, by, observed, expected, hint)
}

// addUnreadable adds a finding that the check could not read its data.
func (s *FindingBuilder) addUnreadable(err error) {
	s.AddFinding(Unknown, ClassEnvironment, fmt.Sprintf("cannot be read: %v", err), "",
		"check that the path exists and that the job's user can read it, also inside the container")
}
