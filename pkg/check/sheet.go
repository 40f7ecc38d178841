package check

import "fmt"

// Sheet is where a check writes down what it finds.
type Sheet struct {
	// Each is what all its findings have in common.
	Each  Finding
	Found []Finding
	// traits are what the check has seen that nodes are compared by.
	traits []Trait
}

// Say writes a finding down. What it returns may be changed until the next is said.
func (s *Sheet) Say(v Verdict, by Class, observed, expected, hint string) *Finding {
	f := s.Each
	f.Verdict, f.Class, f.Observed, f.Expected, f.Hint = v, by, observed, expected, hint
	s.Found = append(s.Found, f)
	return &s.Found[len(s.Found)-1]
}

// Pass tells that all is well.
func (s *Sheet) Pass(observed string) { s.Say(Pass, "", observed, "", "") }

// Skip tells why there is nothing to look at.
func (s *Sheet) Skip(observed string) { s.Say(Skip, "", observed, "", "") }

// Warn tells what is wrong and stops no job: who can mend it and how, and what would pass, where that helps.
func (s *Sheet) Warn(by Class, observed, expected, hint string) *Finding {
	return s.Say(Warn, by, observed, expected, hint)
}

// Fail tells what no job should start with, as Warn does.
func (s *Sheet) Fail(by Class, observed, expected, hint string) *Finding {
	return s.Say(Fail, by, observed, expected, hint)
}

// unread tells that a check could not look.
func (s *Sheet) unread(err error) {
	s.Say(Unknown, Environment, fmt.Sprintf("it could not be read: %v", err), "",
		"see whether the path is there and readable for the job's user, in the container too")
}
