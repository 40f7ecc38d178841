package check

import "fmt"

// Sheet collects the findings of one check.
type Sheet struct {
	// Each contains the values that all findings of the check have in common.
	Each  Finding
	Found []Finding
	// traits are the attributes that the check has read, by which nodes are compared.
	traits []Trait
}

// Say adds a finding. The caller may change the returned Finding until the next one is added.
func (s *Sheet) Say(v Verdict, by Class, observed, expected, hint string) *Finding {
	f := s.Each
	f.Verdict, f.Class, f.Observed, f.Expected, f.Hint = v, by, observed, expected, hint
	s.Found = append(s.Found, f)
	return &s.Found[len(s.Found)-1]
}

// Pass adds a finding that the check has passed.
func (s *Sheet) Pass(observed string) { s.Say(Pass, "", observed, "", "") }

// Skip adds a finding that the check does not apply, with the reason.
func (s *Sheet) Skip(observed string) { s.Say(Skip, "", observed, "", "") }

// Warn adds a finding about a problem that does not stop the job. by is the class of the fault,
// expected is what would pass (it may be empty), and hint is how to fix it.
func (s *Sheet) Warn(by Class, observed, expected, hint string) *Finding {
	return s.Say(Warn, by, observed, expected, hint)
}

// Fail adds a finding about a problem with which no job should start. The parameters are those of
// Warn.
func (s *Sheet) Fail(by Class, observed, expected, hint string) *Finding {
	return s.Say(Fail, by, observed, expected, hint)
}

// unread adds a finding that the check could not read its data.
func (s *Sheet) unread(err error) {
	s.Say(Unknown, Environment, fmt.Sprintf("it could not be read: %v", err), "",
		"see whether the path is there and readable for the job's user, in the container too")
}
