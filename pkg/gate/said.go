package gate

import (
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Said is what a node's events say last of what it waits for.
type Said struct{ checks, sandbox, service string }

// Hear takes in an event.
func (s *Said) Hear(word trail.Word, fields trail.Fields) {
	switch {
	case word == trail.Waits:
		s.checks = fields.Checks
	case word == trail.Checked:
		s.checks = ""
	case word == trail.Probe && fields.Child == signal.Sandbox:
		s.sandbox = fields.Seen // empty where it has answered
	case word == trail.Probe:
		s.service = fields.Seen
	}
}

// Of returns what it says of a step; empty where it says nothing.
func (s Said) Of(step string) string {
	switch step {
	case Check:
		return s.checks
	case Sandbox:
		return s.sandbox
	case Workers:
		return s.service
	default:
		return ""
	}
}
